"""A load of raw HTTP: it sends the same request over and over and only counts bytes, so that the
server is measured."""

from __future__ import annotations

import asyncio
import json
import statistics

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


def request_bytes(body: bytes = REQUEST_BODY) -> bytes:
    return (
        b"POST /run_code HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: "
        b"application/json\r\nUser-Agent: bench\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    )


class _Caller(asyncio.Protocol):
    """Sends the request again as soon as an answer of the known length has arrived, until it has
    all its answers."""

    def __init__(self, length: int, wanted: int) -> None:
        self._length = length
        self._wanted = wanted
        self._got = 0
        self._loop = asyncio.get_running_loop()
        self._request = request_bytes()
        self._asked = 0.0
        self.took: list[float] = []
        self.done: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        self._asked = self._loop.time()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._got += len(data)
        if self._got < self._length or self.done.done():
            return
        self._got -= self._length
        self.took.append(self._loop.time() - self._asked)
        if len(self.took) == self._wanted:
            self.done.set_result(None)
        else:
            self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError(f"the server closed the connection: {error}"))


async def answer_of(port: int, body: bytes = REQUEST_BODY) -> bytes:
    """Return one complete answer, headers included."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request_bytes(body))
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length"))
    found = await reader.readexactly(length)
    writer.close()
    await writer.wait_closed()
    return head + found


async def _load(port: int, connections: int, each: int) -> tuple[float, list[_Caller]]:
    length = len(await answer_of(port))
    loop = asyncio.get_running_loop()
    began = loop.time()
    made = [
        await loop.create_connection(lambda: _Caller(length, each), "127.0.0.1", port)
        for _ in range(connections)
    ]
    callers = [caller for _, caller in made]
    await asyncio.gather(*(caller.done for caller in callers))
    took = loop.time() - began
    for transport, _ in made:
        transport.abort()
    await asyncio.sleep(0)
    return took, callers


async def answers_per_second(port: int, connections: int, requests: int) -> float:
    each = max(1, requests // connections)
    took, _ = await _load(port, connections, each)
    return each * connections / took


async def seconds_per_answer(port: int, requests: int) -> float:
    """Return the median on one connection, one request at a time."""
    _, (caller,) = await _load(port, 1, requests)
    return statistics.median(caller.took)
