"""Tests of the rollouts on the fakes and of ``sfusion rollout``."""
