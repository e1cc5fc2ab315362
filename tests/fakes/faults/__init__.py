"""Tests of the fault rules."""
