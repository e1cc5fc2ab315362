"""Runs the cells of a notebook, with a real kernel or with the built-in cell runner."""
