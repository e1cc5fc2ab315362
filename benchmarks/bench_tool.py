"""The speed of the tool, as ratios to verl's original design and to plain aiohttp, measured in one run.

    python benchmarks/bench_tool.py [--rounds 5] [--callers 256] [--limit 100]

Three contestants take turns, round after round, against one bare server in its own process: ``tool.execute`` through
the Ray limiter; the limiter, pool and blocking client of original_design.py; and plain aiohttp under an asyncio
semaphore, the floor. Then one caller alone: the tool against the floor, and acquire and release against one call of a
bare Ray actor. Figures are medians over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp

sys.path.insert(0, str(Path(__file__).resolve().parent))

GOALS = {
    "50 ms": {"design": 10.0, "floor": 0.8},
    "at once": {"design": 8.0, "floor": 0.6},
    "pairs": {"design": 10.0},
    "alone": {"floor": 0.8},
    "pairs alone": {"design": 1.0, "actor": 0.67},
}
ANSWER = {
    "status": "Success",
    "message": "",
    "compile_result": None,
    "run_result": {"status": "Finished", "execution_time": 0.01, "return_code": 0, "stdout": "3\n", "stderr": ""},
    "executor_pod_name": None,
    "files": {},
}


def serve() -> None:
    """Run a bare server whose /run_code answers after the seconds in its query."""
    from aiohttp import web

    body = json.dumps(ANSWER).encode()

    async def run_code(request: web.Request) -> web.Response:
        await request.read()
        if pause := float(request.query.get("pause", 0)):
            await asyncio.sleep(pause)
        return web.Response(body=body, content_type="application/json")

    async def main() -> None:
        app = web.Application()
        app.router.add_post("/run_code", run_code)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
        await site.start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()

    asyncio.run(main())


@contextlib.contextmanager
def server() -> Iterator[str]:
    """Run the bare server in its own process; yield its URL."""
    process = subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.terminate()
        process.wait()


async def rate(call: Callable[[], Awaitable[object]], callers: int, calls: int) -> float:
    """Return calls per second, made by that many concurrent callers."""
    left = iter(range(calls))

    async def caller() -> None:
        for _ in left:
            await call()

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return calls / (time.perf_counter() - began)


async def measure(url: str, pause: float, args: argparse.Namespace, *, alone: bool = False) -> dict[str, list[float]]:
    """Return the rates of the three contestants, round by round; without the original design for one caller alone."""
    from original_design import OriginalTool

    from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool

    tool = SandboxFusionTool(
        {"sandbox_fusion_url": f"{url}?pause={pause}", "rate_limit": args.limit, "limiter": "ray",
         "limiter_name": f"bench-{pause}-{alone}"}
    )  # fmt: skip
    baseline = OriginalTool(f"{url}/run_code?pause={pause}", num_workers=128, rate_limit=args.limit)
    body = json.dumps({"code": "print(1 + 2)", "language": "python"}).encode()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        places = asyncio.Semaphore(args.limit)

        async def ours() -> None:
            _, _, metrics = await tool.execute("", {"code": "print(1 + 2)"})
            assert metrics is not None
            assert metrics["outcome"] == "ok"

        async def floor() -> None:
            async with places, session.post(f"{url}/run_code?pause={pause}", data=body) as answer:
                assert (await answer.json())["run_result"]["stdout"] == "3\n"

        instances = itertools.cycle([f"trajectory-{number}" for number in range(args.callers)])
        for _ in range(args.callers):
            baseline.create(next(instances))

        async def original() -> None:
            assert await baseline.execute(next(instances), "print(1 + 2)") == "3\n"

        contestants = {"floor": (floor, args.calls), "ours": (ours, args.calls), "design": (original, args.calls // 4)}
        callers = args.callers
        if alone:
            contestants, callers = {"floor": (floor, args.calls // 4), "ours": (ours, args.calls // 4)}, 1
        rates: dict[str, list[float]] = {name: [] for name in contestants}
        for name, (call, _) in contestants.items():
            await rate(call, callers, 256)
            print(f"  {name} is warm", file=sys.stderr)
        for number in range(args.rounds):
            for name, (call, calls) in contestants.items():
                rates[name].append(await rate(call, callers, calls))
            print(f"  round {number + 1} of {args.rounds}", file=sys.stderr)
    await tool.aclose()
    return rates


async def measure_pairs(args: argparse.Namespace, *, alone: bool = False) -> dict[str, list[float]]:
    """Return the rates of acquire and release, without a tool call, round by round; ``alone`` is with one caller."""
    import ray
    from original_design import OriginalLimiter

    from sfusion_tools.limiter import LimiterSettings
    from sfusion_tools.limiter.ray_limiter import ray_limiter

    limiter = ray_limiter(LimiterSettings(args.limit), f"bench-pairs-{alone}")
    baseline = OriginalLimiter.remote(args.limit)
    bare = ray.remote(num_cpus=0)(BareActor).remote()

    async def ours() -> None:
        async with limiter.permit():
            pass

    async def original() -> None:
        await baseline.acquire.remote()
        await baseline.release.remote()

    async def actor() -> None:
        await bare.call.remote()

    contestants = {"ours": (ours, args.calls * 4), "design": (original, args.calls // 2)}
    callers = args.callers
    if alone:
        few = args.calls // 8
        contestants, callers = {"ours": (ours, few), "design": (original, few), "actor": (actor, few)}, 1
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(args.rounds + 1):
        for name, (call, calls) in contestants.items():
            rates[name].append(await rate(call, callers, calls))
    return {name: found[1:] for name, found in rates.items()}


class BareActor:
    """The least that a call to a Ray actor costs."""

    async def call(self) -> None: ...


def report(title: str, rates: dict[str, list[float]]) -> None:
    """Print medians and ratios, with the goals."""
    medians = {name: statistics.median(found) for name, found in rates.items()}
    print(f"\n{title}")
    for name, found in rates.items():
        spread = f"{min(found):,.0f} to {max(found):,.0f}"
        line = f"  {name:<6} {medians[name]:>9,.0f} per second  ({spread})"
        if name in GOALS[title]:
            line += f"   ours is {medians['ours'] / medians[name]:.2f} x   goal {GOALS[title][name]:g} x"
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--callers", type=int, default=256)
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--calls", type=int, default=2048, help="calls of a contestant in one round")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve()
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    ray.init("local", include_dashboard=False, log_to_driver=False, logging_level="ERROR", num_cpus=2)
    with server() as url:
        for title, pause in (("50 ms", 0.05), ("at once", 0.0)):
            print(f"{title}: {args.callers} callers, limit {args.limit}", file=sys.stderr)
            report(title, asyncio.run(measure(url, pause, args)))
        report("alone", asyncio.run(measure(url, 0.0, args, alone=True)))
    report("pairs", asyncio.run(measure_pairs(args)))
    report("pairs alone", asyncio.run(measure_pairs(args, alone=True)))
    ray.shutdown()


if __name__ == "__main__":
    main()
