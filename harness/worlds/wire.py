"""Events of many processes in one journal: each sends its own as lines over a connection, one place gathers them.

A line is sent when the event happens, so what a killed process had told is not lost, and the end of its connection
says when it died. Processes of one machine share the clock that the journal uses; the clock of another machine is
compared with it when the connection is made, and how exactly that could be done is kept as ``clock_error``.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfusion.harness.journal import Event, Journal
from sfusion.harness.worlds.recorder import Recorder

_LONGEST_LINE = 2**20
_ROUND_TRIPS = 9
_PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class Wire:
    """What a process needs to know to tell its events."""

    host: str
    port: int
    token: str
    zero: float
    """The moment at which the journal begins, by the clock of the gathering process."""
    machine: str
    """Whose clock that is."""
    names: dict[str, str]
    """Names to write instead of addresses."""
    secrets: dict[str, str]
    """Texts that must not reach the journal, and what they are called."""


def this_machine() -> str:
    """Something that differs between machines whose clocks differ."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()


class _Line(Journal):
    """A journal that is kept elsewhere: what is noted here is sent there."""

    def __init__(self, wire: Wire, process: str) -> None:
        super().__init__({})
        self._lock = threading.Lock()
        self._socket = socket.create_connection((wire.host, wire.port), timeout=_PATIENCE)
        self.offset = 0.0
        hello: dict[str, Any] = {"token": wire.token, "process": process}
        if wire.machine != this_machine():
            hello["asks"] = _ROUND_TRIPS
        self._say({**hello, "at": round(time.monotonic() - wire.zero, 6)})
        if "asks" in hello:
            self._compare_clocks()

    def note(self, at: float, source: str, event: str, **facts: Any) -> None:
        """Send an event."""
        self._say({"at": round(at, 6), "source": source, "event": event, **facts})

    def close(self) -> None:
        """Hang up: nothing more will come."""
        with self._lock:
            self._socket.close()

    def _say(self, data: dict[str, Any]) -> None:
        line = json.dumps(data, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            if self._socket.fileno() >= 0:
                try:
                    self._socket.sendall(line)
                except OSError:
                    self._socket.close()  # the gathering place has gone; whoever works here works on

    def _compare_clocks(self) -> None:
        answers = self._socket.makefile("rb")
        best = float("inf")
        for _ in range(_ROUND_TRIPS):
            asked = time.monotonic()
            self._say({"time": None})
            theirs = float(answers.readline())
            back = time.monotonic()
            if back - asked < best:
                best = back - asked
                self.offset = theirs - (asked + back) / 2
        self._say({"clock_error": best / 2})


class ClockRecorder(Recorder):
    """A recorder by the machine's clock, which all its processes share, with the zero that it is given."""

    def __init__(self, journal: Journal, zero: float) -> None:
        super().__init__(journal, time.monotonic)
        self._zero = zero

    def now(self) -> float:
        """Seconds since the journal began."""
        return time.monotonic() - self._zero


class WireRecorder(ClockRecorder):
    """A recorder in a process of its own, with the clock and the names of the gathering one."""

    def __init__(self, wire: Wire, process: str) -> None:
        line = _Line(wire, process)
        super().__init__(line, wire.zero - line.offset)
        self._line = line
        for address, name in wire.names.items():
            self.call_it(address, name)
        for secret, name in wire.secrets.items():
            self.keep_secret(secret, name)

    def close(self) -> None:
        """Nothing more will be told."""
        self.on = False
        self._line.close()


class Gathering:
    """Where the lines of all processes come together. ``heard`` gets every event, ``came`` and ``gone`` processes."""

    def __init__(
        self,
        heard: Callable[[Event], None],
        *,
        came: Callable[[str, float], None],
        gone: Callable[[str], None],
        host: str = "127.0.0.1",
    ) -> None:
        self._heard = heard
        self._came = came
        self._gone = gone
        self._host = host
        self._token = secrets.token_urlsafe(16)
        self._server: asyncio.Server | None = None
        self._talks: dict[asyncio.Task[Any], None] = {}
        self.zero = time.monotonic()
        self.clock_error = 0.0
        """How wrong the times of other machines may be, in seconds; 0 when there are none."""

    async def __aenter__(self) -> Gathering:
        self._server = await asyncio.start_server(self._serve, self._host, 0, limit=_LONGEST_LINE)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for talk in list(self._talks):
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    def wire(self, names: dict[str, str], hidden: dict[str, str]) -> Wire:
        """What to give to the processes."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return Wire(self._host, port, self._token, self.zero, this_machine(), names, hidden)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.current_task()
        assert talk is not None
        self._talks[talk] = None
        process = None
        try:
            hello = json.loads(await reader.readline() or b"{}")
            if not hmac.compare_digest(str(hello.get("token", "")).encode(), self._token.encode()):
                return  # nobody of ours
            process = str(hello["process"])
            self._came(process, hello["at"])
            # A line that was cut off by the death of its process has no end, and is not counted.
            while (line := await reader.readline()).endswith(b"\n"):
                data = json.loads(line)
                if "event" in data:
                    self._heard(data)
                elif "clock_error" in data:
                    self.clock_error = max(self.clock_error, data["clock_error"])
                else:
                    writer.write(f"{time.monotonic()}\n".encode())
        except (ConnectionError, ValueError, asyncio.CancelledError):
            pass  # it ended in the middle of something, was never one of ours, or nobody listens any more
        finally:
            self._talks.pop(talk, None)
            writer.close()
            if process is not None:
                self._gone(process)
