"""All bundled scenarios in world sim, as ``sfusion run`` runs them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.benchmark import Contest, in_turn
from benchmarks.figures import OURS
from benchmarks.ground import Ground


@contextmanager
def matrix(ground: Ground) -> Iterator[Contest]:
    keyword = [] if ground.size(100) >= 100 else ["-k", "wrong-path"]

    def run() -> float:
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "sfusion", "run", *keyword],
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return time.perf_counter() - began

    yield in_turn({OURS: run})
