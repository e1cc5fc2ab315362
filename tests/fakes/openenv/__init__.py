"""Tests of the fake OpenEnv server, those with openenv's own clients in `tox -e lifecycle`."""
