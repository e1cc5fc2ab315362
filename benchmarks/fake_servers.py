"""The fake sandbox against a bare handler that answers the same bytes, and the fault proxy against
a pass-through."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec

from benchmarks.benchmark import Contest, in_turn
from benchmarks.figures import OURS
from benchmarks.ground import Ground
from benchmarks.http_load import REQUEST_BODY, answer_of, answers_per_second, seconds_per_answer

BARE = "bare aiohttp handler"
HTTPSERVER = "pytest-httpserver"
PASS_THROUGH = "bare aiohttp pass-through"
SUBPROCESS = "bare subprocess"
PROGRAM = 'print("ok")'


@contextmanager
def scripted_fake(ground: Ground) -> Iterator[Contest]:
    body = asyncio.run(answer_of(ground.port("fake"))).partition(b"\r\n\r\n")[2].hex()
    count = ground.size(6000, 16)
    turns: dict[str, Callable[[], float]] = {
        OURS: lambda: _rate_of_new(ground, count, "fake"),
        BARE: lambda: _rate_of_new(ground, count, "bare", body),
    }
    missing = {}
    if find_spec("pytest_httpserver") is None:
        missing[HTTPSERVER] = "pytest-httpserver is not installed"
    else:
        turns[HTTPSERVER] = partial(
            rate_of_closing, ground.port("httpserver", body), 16, ground.size(400, 16)
        )
    yield in_turn(turns, missing)


def _rate_of_new(ground: Ground, requests: int, kind: str, *arguments: str) -> float:
    """Measure a server that is started for this: of two processes of one server, one may be a third
    faster for good."""
    port = ground.restart(kind, *arguments)
    _rate(port, 16, max(16, requests // 4))
    return _rate(port, 16, requests)


@contextmanager
def python_fake(ground: Ground) -> Iterator[Contest]:
    """Programs that really run, two at a time, as a bare ``subprocess`` runs them."""
    port = ground.port("fake", "python")
    count = ground.size(24, 2)
    body = json.dumps({**json.loads(REQUEST_BODY), "code": PROGRAM}).encode()

    async def ask() -> None:
        async def caller() -> None:
            for _ in range(max(1, count // 2)):
                answer = await answer_of(port, body)
                assert (
                    json.loads(answer.partition(b"\r\n\r\n")[2])["run_result"]["stdout"] == "ok\n"
                )

        await asyncio.gather(caller(), caller())

    def ours() -> float:
        return _per_second(lambda: asyncio.run(ask()), max(1, count // 2) * 2)

    def bare() -> float:
        def run(_: int) -> None:
            done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
            assert done.stdout == b"ok\n"

        with ThreadPoolExecutor(2) as threads:
            return _per_second(lambda: list(threads.map(run, range(count))), count)

    yield in_turn({OURS: ours, SUBPROCESS: bare})


@contextmanager
def proxy_latency(ground: Ground) -> Iterator[Contest]:
    count = ground.size(300, 2)

    def latency(port: int) -> float:
        return asyncio.run(seconds_per_answer(port, count))

    yield in_turn({name: partial(latency, port) for name, port in _proxies(ground).items()})


@contextmanager
def proxy_throughput(ground: Ground) -> Iterator[Contest]:
    count = ground.size(1600, 32)
    yield in_turn(
        {name: partial(_rate, port, 32, count) for name, port in _proxies(ground).items()}
    )


def _proxies(ground: Ground) -> dict[str, int]:
    upstream = ground.url("fake")
    return {
        OURS: ground.port("proxy", upstream),
        PASS_THROUGH: ground.port("pass-through", upstream),
    }


def _rate(port: int, connections: int, requests: int) -> float:
    return asyncio.run(answers_per_second(port, connections, requests))


def rate_of_closing(port: int, callers: int, requests: int) -> float:
    """Return the answers per second of a server that serves one request on each connection."""
    each = requests // callers

    async def caller() -> None:
        for _ in range(each):
            await answer_of(port)

    async def ask() -> None:
        await asyncio.gather(*(caller() for _ in range(callers)))

    return _per_second(lambda: asyncio.run(ask()), each * callers)


def _per_second(work: Callable[[], object], count: int) -> float:
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)
