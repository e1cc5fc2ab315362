"""The speed of the fake sandbox: ``sfusion bench`` with its benchmarks. See docs/performance.md.

python benchmarks/bench_fake_sandbox.py [options of sfusion bench]
"""

from __future__ import annotations

import sys

from sfusion.harness.cli import app

if __name__ == "__main__":
    app(["bench", "--only", "fake", "--only", "fake-python", *sys.argv[1:]])
