"""The process that keeps a limiter for a machine: started by the first client, gone soon after the last.

A client's connection lasts as long as its process: when it ends, the permits of the client return at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from sfusion_tools.limiter.machine_place import TAKEN, FileStore, Place, framed, unframed
from sfusion_tools.limiter.messages import PROTOCOL
from sfusion_tools.limiter.record import RecordedLimiter
from sfusion_tools.limiter.settings import LimiterSettings

_LOOK_SECONDS = 0.5
_SHORTEST_IDLE = 2.0


class MachineServer:
    """Serves the processes of one user until none is left."""

    def __init__(self, place: Place, lock: int, settings: LimiterSettings) -> None:
        self._place = place
        self._lock = lock
        self._limiter = RecordedLimiter(place.name, FileStore(place.record), settings)
        self._attached_by: dict[str, asyncio.StreamWriter] = {}
        """The connection of each client: the last one over which it attached."""
        self._connections = 0
        self._idle_since = 0.0

    async def serve(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._idle_since = loop.time()
        server = await asyncio.start_unix_server(self._talk, sock=listening)
        while self._place.is_lock(self._lock):
            await asyncio.sleep(_LOOK_SECONDS)
            idle = max(self._limiter.host.settings.lease, _SHORTEST_IDLE)
            if not self._connections and loop.time() - self._idle_since > idle:
                for path in (self._place.socket, self._place.record):
                    with suppress(FileNotFoundError):
                        os.unlink(path)
                break
        server.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        polls: set[asyncio.Task[None]] = set()
        buffer = bytearray()
        try:
            with suppress(ConnectionError):
                while data := await reader.read(1 << 16):
                    buffer += data
                    for number, verb, message in unframed(buffer):
                        if verb == "wait":
                            poll = asyncio.create_task(self._wait(writer, number, message))
                            polls.add(poll)
                            poll.add_done_callback(polls.discard)
                        else:
                            _answer(writer, number, partial(self._do, verb, message, writer))
            # Not when this server ends: its successor has to know of the client.
            for client in [name for name, owner in self._attached_by.items() if owner is writer]:
                del self._attached_by[client]
                self._limiter.forget(client)
        finally:
            self._connections -= 1
            self._idle_since = asyncio.get_running_loop().time()
            for poll in polls:
                poll.cancel()
            writer.close()

    def _do(self, verb: str, message: Any, writer: asyncio.StreamWriter) -> Any:
        match verb:
            case "exchange":
                if message.attach is not None:
                    self._attached_by[message.client] = writer
                return self._limiter.exchange(message)
            case "hello":
                return PROTOCOL, asdict(self._limiter.host.settings)
            case "configure":
                return self._limiter.configure(message)
            case "snapshot":
                return self._limiter.host.snapshot()
        raise ValueError(f"unknown verb {verb!r}")

    async def _wait(self, writer: asyncio.StreamWriter, number: int, message: Any) -> None:
        reply = await self._limiter.host.wait(message)
        _answer(writer, number, lambda: reply)


def _answer(writer: asyncio.StreamWriter, number: int, work: Callable[[], Any]) -> None:
    try:
        reply = framed((number, True, work()))
    except Exception as error:
        reply = framed((number, False, f"{type(error).__name__}: {error}"))
    if not writer.is_closing():
        writer.write(reply)


def main() -> int:
    folder, name, settings = sys.argv[1:]
    place = Place(Path(folder), name)
    lock = place.take_lock()
    if lock is None:
        return TAKEN
    with suppress(FileNotFoundError):
        os.unlink(place.socket)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(place.socket)
    os.chmod(place.socket, 0o600)
    listening.listen(1024)
    if os.fork():  # whoever started this may go on: connections are accepted
        os._exit(0)
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
    listening.setblocking(False)
    asyncio.run(MachineServer(place, lock, LimiterSettings(**json.loads(settings))).serve(listening))
    return 0


if __name__ == "__main__":
    sys.exit(main())
