"""Tests of the reports of a run."""
