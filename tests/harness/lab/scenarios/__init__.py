"""Tests of scenario files and of the bundled scenarios."""
