"""Tests of the fake Daytona, those with the vendor's SDK in `tox -e lifecycle`."""
