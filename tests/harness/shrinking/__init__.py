"""Tests of shrinking."""
