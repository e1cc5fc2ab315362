"""Servers that misbehave at the level of bytes, an event loop in virtual time, and answers to
send."""

from __future__ import annotations

import asyncio
import functools
import json
import selectors
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from enum import Enum, auto
from typing import Any, TypeVar

from sfusion_tools.sandbox import Bounds, RetryPolicy, SandboxClient

T = TypeVar("T")

FAST = RetryPolicy(base=0.001, cap=0.002)
"""Six attempts with almost no pause between them."""


def run_answer(
    stdout: str | None = "3\n",
    stderr: str | None = "",
    *,
    code: int | None = 0,
    run: str = "Finished",
    status: str | None = None,
    **keys: Any,
) -> dict[str, Any]:
    """Return the body of an answer to ``/run_code`` for a program that ran."""
    fine = run == "Finished" and code == 0
    return {
        "status": status or ("Success" if fine else "Failed"),
        "message": "",
        "compile_result": None,
        "run_result": {
            "status": run,
            "execution_time": 0.01,
            "return_code": code,
            "stdout": stdout,
            "stderr": stderr,
        },
        "executor_pod_name": None,
        "files": {},
        **keys,
    }


def http(
    body: bytes | str | dict[str, Any],
    status: str = "200 OK",
    *headers: str,
    length: int | None = None,
) -> bytes:
    """Return a complete HTTP answer."""
    data = (
        json.dumps(body).encode()
        if isinstance(body, dict)
        else body.encode()
        if isinstance(body, str)
        else body
    )
    lines = [
        f"HTTP/1.1 {status}",
        f"content-length: {len(data) if length is None else length}",
        *headers,
    ]
    if not any(line.lower().startswith("content-type") for line in headers):
        lines.append("content-type: application/json")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + data


class Ending(Enum):
    """How a connection can end without an answer."""

    CLOSE = auto()
    RESET = auto()


class RawServer:
    """A TCP server that calls ``serve(writer, number)`` for each complete request; the test
    writes every byte."""

    def __init__(self, serve: Callable[[asyncio.StreamWriter, int], Awaitable[None]]) -> None:
        self._serve = serve
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        """Request line, headers (lower case) and body of each request."""
        self.gone = asyncio.Event()
        """Set when a client has disconnected."""
        self.connections = 0
        self._readers: dict[asyncio.StreamWriter, asyncio.StreamReader] = {}

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._readers[writer] = reader
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                first, *lines = head.strip().split("\r\n")
                headers = {
                    name.lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in lines)
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.requests.append((first, headers, body))
                await self._serve(writer, len(self.requests))
        except (OSError, EOFError, asyncio.CancelledError):
            # the end of the test cancels this task; asyncio would report that as an error of the
            # server
            pass
        finally:
            self.gone.set()
            writer.close()

    async def client_left(self, writer: asyncio.StreamWriter) -> None:
        """Send nothing until the client disconnects."""
        while await self._readers[writer].read(1000):
            pass
        raise EOFError

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Listen on a free loopback port; yield the URL."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()


@asynccontextmanager
async def answering(*answers: bytes | Ending) -> AsyncIterator[tuple[str, RawServer]]:
    """Run a server that gives these answers in turn, then repeats the last one."""

    async def serve(writer: asyncio.StreamWriter, number: int) -> None:
        answer = answers[min(number, len(answers)) - 1]
        if isinstance(answer, Ending):
            if answer is Ending.RESET:
                reset(writer)
            raise EOFError
        writer.write(answer)
        await writer.drain()

    server = RawServer(serve)
    async with server.running() as url:
        yield url, server


def reset(writer: asyncio.StreamWriter) -> None:
    """End the connection with RST instead of FIN."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Events:
    """Records the events of a client and lets a test wait for them."""

    def __init__(self) -> None:
        self.all: list[tuple[str, dict[str, Any]]] = []
        self._news = asyncio.Event()

    def __call__(self, event: str, facts: dict[str, Any]) -> None:
        self.all.append((event, facts))
        self._news.set()

    def names(self) -> list[str]:
        """The names of all events, in order."""
        return [event for event, _ in self.all]

    def of(self, event: str) -> list[dict[str, Any]]:
        """Return the facts of every event of one kind."""
        return [facts for name, facts in self.all if name == event]

    async def first(self, event: str) -> dict[str, Any]:
        """Wait for the first event of this kind."""
        while not self.of(event):
            self._news.clear()
            await self._news.wait()
        return self.of(event)[0]


async def until(condition: Callable[[], object]) -> None:
    """Yield to other tasks until a condition holds that no event announces."""
    while not condition():  # noqa: ASYNC110  # nothing to wait on: the state is another object's
        await asyncio.sleep(0)


def client(url: str | list[str], **options: Any) -> SandboxClient:
    """Make a client with short pauses."""
    options.setdefault("retry", FAST)
    options.setdefault("bounds", Bounds(margin=5.0))
    return SandboxClient(url, **options)


class _Leaping(selectors.DefaultSelector):
    """Gives the kernel a moment to deliver what was sent, then advances the clock to the next
    timer."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        events = super().select(0.01)
        if not events:
            self.now += timeout
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with real sockets whose time advances as soon as it is idle."""

    def __init__(self) -> None:
        self._leaping = _Leaping()
        super().__init__(self._leaping)

    def time(self) -> float:
        return self._leaping.now


def in_virtual_time(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on a new loop in virtual time: minutes of waiting take no time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(make())


def virtually(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an asynchronous test in virtual time."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        in_virtual_time(lambda: test(**fixtures))

    return run
