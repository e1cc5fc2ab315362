"""Scenarios, worlds, journal, verdicts, reports and the command line."""
