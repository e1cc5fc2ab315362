"""The pytest plugin, used by suites as anybody would write them."""
