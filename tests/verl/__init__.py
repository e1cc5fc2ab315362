"""The tool inside verl itself: its registry, its agent loop, its workers. Run by `tox -e verl`, which installs verl."""
