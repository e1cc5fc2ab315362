"""Tests of the rollout."""
