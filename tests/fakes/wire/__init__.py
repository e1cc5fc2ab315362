"""Tests of the wire: bytes, connections and the faults that a client sees on them."""
