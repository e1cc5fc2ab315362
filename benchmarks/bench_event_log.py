"""What the event log costs a call, measured in one run: the tool with and without it, in turns.

    python benchmarks/bench_event_log.py [--rounds 500] [--callers 8] [--calls 40]

Both tools call a bare server in another process that answers at once, the cheapest call there is. Short rounds
alternate, because a busy machine changes its speed from second to second, and the log is written at the end of each
round, more often than it would be. Figures are the lower quartiles of CPU time and wall clock over the rounds: what
disturbs a round only makes it longer.
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

GOAL = 0.02


async def measure(url: str, folder: Path, args: argparse.Namespace) -> dict[str, list[tuple[float, float]]]:
    """Return seconds of CPU and of the wall clock for each call, round by round."""
    from sfusion_tools.event_log import flush_event_logs
    from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool

    base = {"sandbox_fusion_url": url, "rate_limit": args.callers, "limiter": "local", "limiter_name": "bench"}
    tools = {
        "off": SandboxFusionTool(base),
        "on": SandboxFusionTool({**base, "event_log": str(folder / "events.ndjson")}),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in tools}
    warm = args.rounds // 10
    for number in range(args.rounds + warm):
        for name, tool in list(tools.items())[:: 1 if number % 2 else -1]:

            async def call(tool: SandboxFusionTool = tool) -> None:
                _, _, metrics = await tool.execute("", {"code": "print(1 + 2)"})
                assert metrics is not None
                assert metrics["outcome"] == "ok"

            cpu = time.process_time()
            began = time.perf_counter()
            await rate(call, args.callers, args.calls)
            flush_event_logs()
            took = time.process_time() - cpu, time.perf_counter() - began
            if number >= warm:
                found[name].append((took[0] / args.calls, took[1] / args.calls))
    for tool in tools.values():
        await tool.aclose()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--callers", type=int, default=8)
    parser.add_argument("--calls", type=int, default=40)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, server() as url:
        found = asyncio.run(measure(url, Path(folder), args))
        lines = sum(path.read_bytes().count(b"\n") for path in Path(folder).iterdir())
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    assert lines == (args.rounds + args.rounds // 10) * args.calls, f"{lines} lines in the log"
    for what, place in (("CPU time", 0), ("wall clock", 1)):
        off, on = (statistics.quantiles([one[place] for one in found[name]])[0] * 1e6 for name in ("off", "on"))
        print(f"{what:<10} {off:6.1f} µs a call without, {on:6.1f} µs with: {on / off - 1:+.1%}, goal {GOAL:.0%}")
    print(f"{lines:,} lines of {size / lines:.0f} bytes")


if __name__ == "__main__":
    main()
