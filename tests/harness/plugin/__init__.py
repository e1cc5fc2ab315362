"""The pytest plugin, tested with small suites."""
