"""Tests of the rollouts on the fakes."""
