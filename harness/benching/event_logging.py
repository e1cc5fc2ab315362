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

from sfusion.harness.benching.benchmark import Contest, repeat
from sfusion.harness.benching.calls import CODE
from sfusion.harness.benching.figures import OURS
from sfusion.harness.benching.ground import Ground
from sfusion_tools import event_log
from sfusion_tools.event_log import flush_event_logs
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool

WITHOUT = "without the log"
_CALLS, _BATCH = 10, 50
_names = itertools.count(1)


def _low(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[0] if len(values) > 1 else values[0]


@contextmanager
def logged_calls(ground: Ground) -> Iterator[Contest]:
    """Short turns alternate; the log is written after every 50th, as many lines at once as half a second has.

    The figure of a round is the lowest twentieth of its turns, because whatever else the machine does only makes a turn
    longer; with the log, plus the same of writing a line.
    """
    turns = _BATCH * ground.size(8)
    base = {"sandbox_fusion_url": ground.url("bare"), "rate_limit": 64, "limiter": "local"}
    interval, event_log.INTERVAL = event_log.INTERVAL, 1e6  # the turns write
    try:
        with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
            name = f"bench-log-{next(_names)}"
            tools = {
                WITHOUT: SandboxFusionTool({**base, "limiter_name": name}),
                OURS: SandboxFusionTool({**base, "limiter_name": name, "event_log": str(Path(folder) / "log.ndjson")}),
            }

            async def turn(tool: SandboxFusionTool) -> float:
                began = time.process_time()
                await repeat(lambda: tool.execute("", {"code": CODE}), 5, _CALLS)
                return (time.process_time() - began) / _CALLS

            def write(lines: int) -> float:
                began = time.process_time()
                flush_event_logs()
                return (time.process_time() - began) / lines

            async def measure(number: int) -> Mapping[str, float]:
                found: dict[str, list[float]] = {name: [] for name in tools}
                written: list[float] = []
                for place in range(turns):
                    for name, tool in list(tools.items())[:: 1 if (place + number) % 2 else -1]:
                        found[name].append(await turn(tool))
                    if (place + 1) % _BATCH == 0:
                        written.append(write(_BATCH * _CALLS))
                return {OURS: _low(found[OURS]) + _low(written), WITHOUT: _low(found[WITHOUT])}

            yield Contest(lambda number: runner.run(measure(number)))
            for tool in tools.values():
                runner.run(tool.aclose())
    finally:
        event_log.INTERVAL = interval
