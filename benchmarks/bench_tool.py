"""The speed of a tool call: ``sfusion bench`` with the benchmarks of calls and permits. See docs/performance.md.

python benchmarks/bench_tool.py [options of sfusion bench]
"""

from __future__ import annotations

import sys

from sfusion.harness.benching.catalogue import BENCHMARKS
from sfusion.harness.cli import app

if __name__ == "__main__":
    names = [one.name for one in BENCHMARKS if one.name.startswith(("call", "permits"))]
    app(["bench", *(word for name in names for word in ("--only", name)), *sys.argv[1:]])
