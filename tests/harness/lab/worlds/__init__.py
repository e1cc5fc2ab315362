"""Tests of the worlds: virtual time, the simulated parts and the journal of a remote process."""
