"""Comparing runs."""
