"""What many short-lived event loops leave behind: open files, loops, sessions, tasks and permits,
before and after.

    python -m benchmarks.leaks [--runs 1000] [--closed 200]

Each run is an ``asyncio.run`` with one tool call. Each closed loop is a ``run_until_complete`` with
one tool call and a ``close``; every second one has another call under way when it is closed. Exits
with 1 if anything is left.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import sys
from typing import Any

import aiohttp

from benchmarks.ground import Ground


def census(tool: object) -> dict[str, int]:
    """Count what a loop can leave behind."""
    from sfusion_tools.limiter.host import shared_host
    from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool

    assert isinstance(tool, SandboxFusionTool)
    gc.collect()
    kinds = {
        "loops": asyncio.AbstractEventLoop,
        "sessions": aiohttp.ClientSession,
        "tasks": asyncio.Task,
    }
    objects = gc.get_objects()
    snapshot = shared_host(tool.settings.limiter_name, tool.settings.limits, apply=False).snapshot()
    return {
        "open files": len(os.listdir("/dev/fd")),
        **{name: sum(isinstance(found, kind) for found in objects) for name, kind in kinds.items()},
        "permits": snapshot.in_use,
        "waiting": snapshot.waiting,
    }


def main() -> None:
    from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--closed", type=int, default=200)
    args = parser.parse_args()
    # asyncio and the interpreter report the calls that were under way when their loop was closed.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    sys.unraisablehook = lambda _: None
    with Ground() as ground:
        url = ground.url("bare")
        begun: list[asyncio.Event] = []

        def observe(event: str, facts: dict[str, Any]) -> None:
            if event == "attempt_started" and begun:
                begun.pop().set()

        config = {
            "sandbox_fusion_url": url,
            "limiter": "local",
            "rate_limit": 2,
            "permit_lease": 3600,
        }
        tool = SandboxFusionTool(config, on_event=observe)

        under_way: list[asyncio.Task[None]] = []

        async def call() -> None:
            _, _, metrics = await tool.execute("", {"code": "1"})
            assert metrics is not None
            assert metrics["outcome"] == "ok", metrics

        async def call_and_begin_another() -> None:
            await call()
            begun.append(another := asyncio.Event())
            under_way.append(asyncio.create_task(call()))
            await another.wait()

        def close_without_farewell(number: int) -> None:
            loop = asyncio.new_event_loop()
            loop.run_until_complete(call_and_begin_another() if number % 2 else call())
            loop.close()
            under_way.clear()

        asyncio.run(call())
        counts = {"before": census(tool)}
        for _ in range(args.runs):
            asyncio.run(call())
        counts[f"after {args.runs} runs"] = census(tool)
        for number in range(args.closed):
            close_without_farewell(number)
        asyncio.run(call())
        counts[f"after {args.closed} closed loops"] = census(tool)
    for when, what in counts.items():
        print(f"{when:>24}  " + "  ".join(f"{name} {count}" for name, count in what.items()))
    sys.exit(any(what != counts["before"] for what in counts.values()))


if __name__ == "__main__":
    main()
