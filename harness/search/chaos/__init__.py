"""Chaos: planned rounds of kills, stops and crashes on a real Ray cluster, judged and compared with
world sim."""
