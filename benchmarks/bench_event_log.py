"""What the event log costs a call, measured in one run: the tool with and without it, in turns.

    python benchmarks/bench_event_log.py [--rounds 3000] [--calls 10]

Both tools call a bare server in another process that answers at once, the cheapest call there is. Short rounds
alternate, and the log is written after each round, apart from it: that is the work of the writing thread. The figures
are CPU times of this process, each the lowest twentieth over all rounds, because whatever else the machine does only
makes a round longer.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_tool import rate, server

from sfusion_tools import event_log
from sfusion_tools.event_log import flush_event_logs
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool

GOAL = 0.02
BATCH = 500
"""Lines that are written at once, half a second's worth at 1,000 calls a second."""


async def measure(url: str, folder: Path, args: argparse.Namespace) -> dict[str, list[float]]:
    """Return seconds of CPU for each call without and with the log, and for each line that is written."""
    base = {"sandbox_fusion_url": url, "rate_limit": 64, "limiter": "local", "limiter_name": "bench"}
    tools = {
        "off": SandboxFusionTool(base),
        "on": SandboxFusionTool({**base, "event_log": str(folder / "events.ndjson")}),
    }
    found: dict[str, list[float]] = {"off": [], "on": [], "writing": []}

    async def call(tool: SandboxFusionTool) -> None:
        _, _, metrics = await tool.execute("", {"code": "print(1 + 2)"})
        assert metrics is not None
        assert metrics["outcome"] == "ok"

    for number in range(args.rounds):
        for name, tool in list(tools.items())[:: 1 if number % 2 else -1]:
            began = time.process_time()
            await rate(lambda tool=tool: call(tool), 5, args.calls)  # type: ignore[misc]
            found[name].append((time.process_time() - began) / args.calls)
        flush_event_logs()
    for _ in range(30):
        await rate(lambda: call(tools["on"]), 5, BATCH)
        began = time.process_time()
        flush_event_logs()
        found["writing"].append((time.process_time() - began) / BATCH)
    for tool in tools.values():
        await tool.aclose()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--calls", type=int, default=10)
    args = parser.parse_args()
    event_log.INTERVAL = 1e6  # the rounds write
    with tempfile.TemporaryDirectory() as folder, server() as url:
        found = asyncio.run(measure(url, Path(folder), args))
        text = "".join(path.read_text() for path in Path(folder).iterdir())
    lines = text.count("\n")
    assert lines == args.rounds * args.calls + 30 * BATCH, f"{lines} lines in the log"
    off, on, writing = (statistics.quantiles(found[name], n=20)[0] * 1e6 for name in ("off", "on", "writing"))
    print(f"a call without the log   {off:6.1f} µs of CPU")
    print(f"a call with the log      {on:6.1f} µs")
    print(f"writing its line         {writing:6.1f} µs")
    print(f"together {(on + writing) / off - 1:+.1%}, goal at most {GOAL:+.0%}")
    print(f"{lines:,} lines of {len(text) / lines:.0f} bytes")


if __name__ == "__main__":
    main()
