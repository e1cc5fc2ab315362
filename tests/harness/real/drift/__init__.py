"""Drift: comparing, grading and reporting, against servers that really differ."""
