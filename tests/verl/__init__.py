"""The tool inside verl: its registry, agent loop and workers. Run by `tox -e verl`, which installs
verl."""
