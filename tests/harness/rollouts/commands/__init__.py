"""Tests of the commands about rollouts."""
