"""Tests of the fault proxy."""
