"""Tests of the fake sglang."""
