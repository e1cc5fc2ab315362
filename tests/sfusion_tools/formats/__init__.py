"""Tests of the tool-call formats."""
