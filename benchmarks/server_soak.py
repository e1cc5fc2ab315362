"""The memory of servers over many requests, each of which is new to them.

    python -m benchmarks.server_soak [--requests 1000000] [--server fake] [--json FILE]

Each server runs in a process of its own. Every call, body, prompt and a share of the paths is
different, so that whatever a server keeps of a request shows. Prints its resident memory at even
distances; exit code 1 if it grew in the second half by more than a few bytes for each request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.ground import Ground
from sfusion.harness.studies.look.summary import sparkline

SERVERS = ("fake", "proxy", "sglang")
MOST_GROWTH = 10.0
"""Bytes for each request of the second half that are taken for noise (chosen: what is kept of a
request takes hundreds)."""
POINTS = 20
"""How many times the memory is measured (chosen)."""
CONNECTIONS = 32
REQUESTS_OF_A_CONNECTION = 1000
OTHERS = 2
"""One in so many requests is not for work and asks for a path of its own."""


@dataclass(frozen=True, slots=True)
class Point:
    """The memory of a server after so many requests."""

    requests: int
    memory: int
    """Bytes of RSS."""
    seconds: float
    """Of real time since the first request."""


def run_code(number: int) -> tuple[str, bytes]:
    code = f'# sfusion:call=c{number:09} prints="ok\\n"\nprint("ok")'
    return "/run_code", json.dumps({"code": code, "language": "python"}).encode()


def generate(number: int) -> tuple[str, bytes]:
    text = f"Question {number:09}: what is it? " + f"{number:09}" * 15
    body = {"text": text, "sampling_params": {"max_new_tokens": 4}, "rid": f"r{number:09}"}
    return "/generate", json.dumps(body).encode()


BODIES: dict[str, Callable[[int], tuple[str, bytes]]] = {
    "fake": run_code,
    "proxy": run_code,
    "sglang": generate,
}


def request_bytes(server: str, number: int) -> bytes:
    """Return a request that no other is equal to."""
    if number % OTHERS == 0:
        return f"GET /page-{number:09} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    path, body = BODIES[server](number)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Numbers:
    """Hands out the numbers of requests, and measures at even distances."""

    def __init__(self, requests: int, measure: Callable[[int], None]) -> None:
        self._last = requests
        self._step = max(1, requests // POINTS)
        self._measure = measure
        self._next = 0

    def take(self) -> int | None:
        if self._next >= self._last:
            return None
        self._next += 1
        if self._next % self._step == 0:
            self._measure(self._next)
        return self._next


async def _caller(port: int, server: str, numbers: Numbers) -> None:
    """Send requests one after another, on a new connection now and then."""
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(REQUESTS_OF_A_CONNECTION):
            number = numbers.take()
            if number is None:
                writer.close()
                return
            writer.write(request_bytes(server, number))
            await _read_answer(reader)
        writer.close()


async def _read_answer(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))


def memory_of(pid: int) -> int:
    """Return the resident bytes of a process (Linux)."""
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * resource.getpagesize()


def soak(ground: Ground, server: str, requests: int, show: Callable[[Point], None]) -> list[Point]:
    """Send so many requests to a server; return its memory at even distances."""
    upstream = [ground.url("bare")] if server == "proxy" else []
    port = ground.restart(server, *upstream)
    pid = ground.process(server, *upstream)
    points: list[Point] = []
    began = time.monotonic()

    def measure(done: int) -> None:
        points.append(Point(done, memory_of(pid), time.monotonic() - began))
        show(points[-1])

    async def main() -> None:
        numbers = Numbers(requests, measure)
        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(_caller(port, server, numbers))

    asyncio.run(main())
    return points


def growth_of(points: list[Point]) -> float:
    """Return by how many bytes the memory grew for each request of the second half."""
    middle = points[len(points) // 2]
    last = points[-1]
    return (last.memory - middle.memory) / max(1, last.requests - middle.requests)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--server", choices=SERVERS, action="append")
    parser.add_argument("--json", type=Path, help="where to write the points")
    options = parser.parse_args(arguments)

    def show(point: Point) -> None:
        print(
            f"{point.requests:>11,} {point.memory / 2**20:>8.1f} MB {point.seconds:>8.0f} s",
            flush=True,
        )

    found: dict[str, list[Point]] = {}
    with Ground() as ground:
        for server in options.server or SERVERS:
            print(server)
            found[server] = soak(ground, server, options.requests, show)
    grew = {server: growth_of(points) for server, points in found.items()}
    for server, points in found.items():
        curve = sparkline([point.memory for point in points])
        print(f"{server:<7} {curve}  {grew[server]:+.1f} bytes for each request of the second half")
    if options.json is not None:
        data = {server: [asdict(point) for point in points] for server, points in found.items()}
        options.json.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    return int(any(bytes_each > MOST_GROWTH for bytes_each in grew.values()))


if __name__ == "__main__":
    sys.exit(main())
