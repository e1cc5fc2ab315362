"""Tests of the fake sandbox."""
