"""The cost of the fault proxy, as a ratio to a bare aiohttp pass-through in front of the same fake sandbox.

    python benchmarks/bench_proxy.py [--requests 300] [--rounds 9] [--connections 32] [--seconds 1]

Each of the three servers runs in its own process. Latency: one connection, one request at a time, the median of each
round. Throughput: many connections that send again as soon as they get an answer. Rounds alternate between the two and
each ratio is the median over pairs of rounds, so that other load on the machine affects both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

# Python puts this folder on the path for a script, but not for a test that imports it.
sys.path.insert(0, str(Path(__file__).parent))

from bench_fake_sandbox import FAKE, REQUEST, Caller, answer_of, rate, serve

GOAL = 2.0
"""The highest ratio of the proxy's latency to the bare one."""
PROXY = """
import asyncio, sys
from sfusion.fakes.proxy import FaultProxy
async def main():
    async with FaultProxy(sys.argv[1]) as proxy:
        print(proxy.port, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""
BARE = """
import asyncio, sys
from aiohttp import ClientSession, web
UPSTREAM = sys.argv[1]
async def handler(request):
    body = await request.read()
    async with request.app["session"].request(
        request.method, UPSTREAM + request.path_qs, headers=request.headers, data=body, allow_redirects=False
    ) as answer:
        return web.Response(status=answer.status, headers=answer.headers, body=await answer.read())
async def main():
    app = web.Application()
    app["session"] = ClientSession()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(site._server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


class Timer(Caller):
    """Records how long each answer took, one request at a time."""

    def __init__(self, length: int, wanted: int) -> None:
        super().__init__(length)
        self._wanted = wanted
        self._loop = asyncio.get_running_loop()
        self._asked = self._loop.time()
        self.took: list[float] = []
        self.done: asyncio.Future[None] = self._loop.create_future()

    def data_received(self, data: bytes) -> None:
        before = self.answers
        now = self._loop.time()
        super().data_received(data)
        if self.answers > before and not self.done.done():
            self.took.append(now - self._asked)
            self._asked = self._loop.time()
            if len(self.took) == self._wanted:
                self.done.set_result(None)


async def latency(port: int, length: int, requests: int) -> float:
    """Return the median seconds per answer on one warm connection."""
    warm = requests // 10
    loop = asyncio.get_running_loop()
    transport, timer = await loop.create_connection(lambda: Timer(length, requests + warm), "127.0.0.1", port)
    await timer.done
    transport.abort()
    return statistics.median(timer.took[warm:])


def ratios(ours: list[float], theirs: list[float]) -> dict[str, Any]:
    """Return the median and the range over pairs of rounds."""
    pairs = sorted(mine / other for mine, other in zip(ours, theirs, strict=True))
    return {"ratio": round(statistics.median(pairs), 3), "ratio_range": [round(pairs[0], 3), round(pairs[-1], 3)]}


async def compare(*, requests: int, rounds: int, connections: int, seconds: float) -> dict[str, Any]:
    """Measure the two in turn."""
    with ExitStack() as stack:

        def started(program: str, *arguments: str) -> int:
            process, port = serve(program, *arguments)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return port

        upstream = f"http://127.0.0.1:{started(FAKE)}"
        proxy, bare = started(PROXY, upstream), started(BARE, upstream)
        lengths = {port: len(await answer_of(port)) for port in (proxy, bare)}
        times: dict[int, list[float]] = {proxy: [], bare: []}
        rates: dict[int, list[float]] = {proxy: [], bare: []}
        for number in range(rounds):
            for port in (bare, proxy) if number % 2 else (proxy, bare):
                times[port].append(await latency(port, lengths[port], requests))
                rates[port].append(await rate(port, lengths[port], connections, seconds))
    return {
        "latency": {
            "proxy_ms": round(statistics.median(times[proxy]) * 1000, 3),
            "bare_ms": round(statistics.median(times[bare]) * 1000, 3),
            **ratios(times[proxy], times[bare]),
            "goal": GOAL,
            "held": ratios(times[proxy], times[bare])["ratio"] <= GOAL,
        },
        "throughput": {
            "connections": connections,
            "proxy_per_second": round(statistics.median(rates[proxy])),
            "bare_per_second": round(statistics.median(rates[bare])),
            **ratios(rates[proxy], rates[bare]),
        },
        "request_bytes": len(REQUEST),
        "rounds": rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=1.0)
    print(json.dumps(asyncio.run(compare(**vars(parser.parse_args()))), indent=2))


if __name__ == "__main__":
    main()
