"""Tests of the faults, the wire and the fake sandbox."""
