"""Tests of the promises: each is broken on purpose."""
