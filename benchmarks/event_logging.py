"""What the event log costs a call: the tool with and without it, in CPU time of this process."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.benchmark import Contest, repeat
from benchmarks.calls import CODE
from benchmarks.figures import OURS
from benchmarks.ground import Ground
from sfusion_tools import event_log
from sfusion_tools.event_log import flush_event_logs
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool

WITHOUT = "without the log"
_CALLS = 10
"""Calls between two readings of the clock (chosen)."""
_BATCH = 50
"""Such stretches in one measurement (chosen)."""
_names = itertools.count(1)


@contextmanager
def logged_calls(ground: Ground) -> Iterator[Contest]:
    """Short turns alternate; the log is written after every 50th, as many lines at once as half a
    second has.

    The speed of a machine changes from second to second: what a batch costs with the log is only
    compared with the same batch without it, and the figure of a round is its batch of the median
    ratio.
    """
    base = {"sandbox_fusion_url": ground.url("bare"), "rate_limit": 64, "limiter": "local"}
    interval = event_log.INTERVAL
    event_log.INTERVAL = 1e6  # the turns write
    try:
        with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
            name = f"bench-log-{next(_names)}"
            tools = {
                WITHOUT: SandboxFusionTool({**base, "limiter_name": name}),
                OURS: SandboxFusionTool(
                    {**base, "limiter_name": name, "event_log": str(Path(folder) / "log.ndjson")}
                ),
            }

            async def turn(tool: SandboxFusionTool) -> float:
                began = time.process_time()
                await repeat(lambda: tool.execute("", {"code": CODE}), 5, _CALLS)
                return (time.process_time() - began) / _CALLS

            def write(lines: int) -> float:
                began = time.process_time()
                flush_event_logs()
                return (time.process_time() - began) / lines

            async def batch(number: int) -> tuple[float, float]:
                found: dict[str, list[float]] = {name: [] for name in tools}
                for place in range(_BATCH):
                    for name, tool in list(tools.items())[:: 1 if (place + number) % 2 else -1]:
                        found[name].append(await turn(tool))
                return statistics.median(found[OURS]) + write(_BATCH * _CALLS), statistics.median(
                    found[WITHOUT]
                )

            async def measure(number: int) -> Mapping[str, float]:
                batches = [await batch(number) for _ in range(ground.size(8))]
                ours, without = statistics.median_low(
                    (logged / two, logged, two) for logged, two in batches
                )[1:]
                return {OURS: ours, WITHOUT: without}

            yield Contest(lambda number: runner.run(measure(number)))
            for tool in tools.values():
                runner.run(tool.aclose())
    finally:
        event_log.INTERVAL = interval
