"""Tests of the fake E2B, those with the vendor's SDKs in `tox -e lifecycle`."""
