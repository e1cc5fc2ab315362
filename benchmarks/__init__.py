"""Benchmarks: the tool, the fakes and the simulation, measured against baselines in one run, and
how cost grows."""
