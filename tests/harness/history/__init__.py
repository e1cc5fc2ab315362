"""The history of runs."""
