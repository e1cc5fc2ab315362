"""Requests per second of the scripted fake sandbox, as a ratio to a bare aiohttp handler answering the same bytes.

    python benchmarks/bench_fake_sandbox.py [--seconds 1] [--rounds 9] [--connections 16]

Each server runs in its own process. This process sends over keep-alive connections and only counts bytes, so that the
server is what is measured. Rounds alternate between the two and the ratio is the median over pairs of rounds, so that
other load on the machine affects both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
from typing import Any

REQUEST_BODY = json.dumps(
    {
        "compile_timeout": 10,
        "run_timeout": 10,
        "code": '# sfusion:call=c17 prints="ok\\n"\nprint("ok")',
        "stdin": None,
        "memory_limit_MB": 1024,
        "language": "python",
        "files": {},
        "fetch_files": [],
    }
).encode()
REQUEST = (
    b"POST /run_code HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\nUser-Agent: bench\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(REQUEST_BODY), REQUEST_BODY)
)

FAKE = """
import asyncio
from sfusion.fakes.sandbox import FakeSandbox
async def main():
    async with FakeSandbox() as sandbox:
        print(sandbox.port, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""
BARE = """
import asyncio, sys
from aiohttp import web
BODY = bytes.fromhex(sys.argv[1])
async def handler(request):
    await request.read()
    return web.Response(body=BODY, content_type="application/json")
async def main():
    app = web.Application()
    app.router.add_post("/run_code", handler)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(site._server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


class Caller(asyncio.Protocol):
    """Sends the request again as soon as an answer of the known length has arrived."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.got = 0
        self.answers = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        self.got += len(data)
        if self.got >= self.length:
            self.got -= self.length
            self.answers += 1
            if self.transport is not None:
                self.transport.write(REQUEST)


async def answer_of(port: int) -> bytes:
    """Return one complete answer, headers included."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST)
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
    )
    body = await reader.readexactly(length)
    writer.close()
    await writer.wait_closed()
    return head + body


async def rate(port: int, length: int, connections: int, seconds: float) -> float:
    """Return answers per second."""
    loop = asyncio.get_running_loop()
    connected = [await loop.create_connection(lambda: Caller(length), "127.0.0.1", port) for _ in range(connections)]
    callers = [caller for _, caller in connected]
    await asyncio.sleep(0.2)
    started, at = sum(caller.answers for caller in callers), loop.time()
    await asyncio.sleep(seconds)
    done, now = sum(caller.answers for caller in callers), loop.time()
    for caller in callers:
        if caller.transport is not None:
            caller.transport.abort()
    await asyncio.sleep(0.1)
    return (done - started) / (now - at)


def serve(program: str, *arguments: str) -> tuple[subprocess.Popen[str], int]:
    """Start a server in its own process; return the process and the port."""
    process = subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


async def compare(*, seconds: float, rounds: int, connections: int) -> dict[str, Any]:
    """Measure the two in turn."""
    fake, fake_port = serve(FAKE)
    try:
        answer = await answer_of(fake_port)
        bare, bare_port = serve(BARE, answer.partition(b"\r\n\r\n")[2].hex())
        try:
            lengths = {fake_port: len(answer), bare_port: len(await answer_of(bare_port))}
            rates: dict[int, list[float]] = {fake_port: [], bare_port: []}
            for _ in range(rounds):
                for port in (bare_port, fake_port):
                    rates[port].append(await rate(port, lengths[port], connections, seconds))
        finally:
            bare.kill()
            bare.wait()
    finally:
        fake.kill()
        fake.wait()
    pairs = sorted(ours / theirs for ours, theirs in zip(rates[fake_port], rates[bare_port], strict=True))
    return {
        "fake_per_second": round(statistics.median(rates[fake_port])),
        "bare_per_second": round(statistics.median(rates[bare_port])),
        "ratio": round(statistics.median(pairs), 3),
        "ratio_range": [round(pairs[0], 3), round(pairs[-1], 3)],
        "rounds": len(pairs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--connections", type=int, default=16)
    arguments = parser.parse_args()
    print(json.dumps(asyncio.run(compare(**vars(arguments))), indent=2))


if __name__ == "__main__":
    main()
