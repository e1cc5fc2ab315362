"""Tests, named after the promises they check."""
