"""Writes events to a journal, with names instead of addresses and without secrets.

Many processes share one journal: each sends its events as lines over a connection, and a server
collects them. A line is sent when the event happens, so the events of a killed process are not
lost, and the end of its connection tells when it died. Processes on one machine share the clock of
the journal; the clock of another machine is compared with it when the connection is made, and the
remaining uncertainty is kept as ``clock_error``.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.journal import SHOWN, Event, Journal, encode_line
from .replacing import diverted_logs

SHORTEST_SECRET = 4
"""Characters of a secret that is searched for in texts."""


class Recorder:
    """Records events with the time of a clock. Secrets are removed from texts, and the event is
    marked as leaking."""

    def __init__(
        self, journal: Journal, clock: Callable[[], float], zero: float | None = None
    ) -> None:
        """The recording begins at ``zero`` of the clock; None for now."""
        self.journal = journal
        self._clock = clock
        self._began = clock() if zero is None else zero
        self._names: dict[str, str] = {}
        self.secrets: dict[str, str] = {}
        """What is watched for, and the names of it."""
        self._shortest = sys.maxsize
        """Texts below this length hold no address and no secret."""
        self.short_secrets: list[str] = []
        """Names of secrets that cannot be told from other text."""
        self.on = True

    def alias(self, address: str, name: str) -> None:
        """Write a name in place of an address, because addresses differ from run to run."""
        self._names[address] = name
        self._shortest = min(self._shortest, len(address))

    def keep_secret(self, secret: str, name: str) -> None:
        """Watch for a text that must not be written, unless it is so short that it occurs by
        chance."""
        if len(secret) < SHORTEST_SECRET:
            self.short_secrets.append(name)
        else:
            self.secrets[secret] = name
            self._shortest = min(self._shortest, len(secret))

    def now(self) -> float:
        """Return the seconds since the recording began."""
        return self._clock() - self._began

    def note(self, source: str, event: str, **facts: Any) -> None:
        """Record an event, unless recording is off."""
        if self.on:
            self._add({"at": self.now(), "source": source, "event": event, **facts})

    def server_events(self, sandbox: str | None) -> Callable[[Mapping[str, Any]], None]:
        """Return a journal for a fake or a proxy; ``sandbox`` names it where there are several."""
        named = {} if sandbox is None else {"sandbox": sandbox}

        def note(event: Mapping[str, Any]) -> None:
            if self.on:
                self._add({**event, **named, "at": self.now()})

        return note

    def _add(self, record: Event) -> None:
        leaked: list[str] = []
        for key, value in record.items():
            if isinstance(value, float):
                record[key] = round(value, 6)
            elif isinstance(value, str):
                if len(value) >= self._shortest:
                    record[key] = value = self._clean(value, leaked)
                if key == "text":
                    # The whole text is searched for secrets, but only its beginning is kept.
                    record[key] = value[:SHOWN]
        fields = record.get("fields")
        if isinstance(fields, dict):
            text = encode_line(fields)
            clean_text = self._clean(text, leaked)
            if clean_text != text:
                record["fields"] = json.loads(clean_text)
        pieces = record.get("pieces")
        if pieces:
            record["pieces"] = [
                self._clean(piece, leaked) if isinstance(piece, str) else piece for piece in pieces
            ]
        if leaked:
            record["leaked"] = leaked
        self.journal.add(record)

    def holds_secret(self, text: str) -> bool:
        return any(secret in text for secret in self.secrets)

    def _clean(self, text: str, leaked: list[str]) -> str:
        for address, name in self._names.items():
            text = text.replace(address, name)
        for secret, name in self.secrets.items():
            if secret in text:
                text = text.replace(secret, "<secret>")
                if name not in leaked:
                    leaked.append(name)
        return text


class LogHandler(logging.Handler):
    """Records warnings and errors that the code under test logs."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(logging.WARNING)
        self._recorder = recorder

    def emit(self, record: logging.LogRecord) -> None:
        facts = {"level": record.levelname.lower(), "text": record.getMessage()}
        if record.levelno >= logging.ERROR:
            facts["place"] = f"{record.filename}:{record.funcName}"
        self._recorder.note("world", "log", **facts)


def recorded_logs(recorder: Recorder) -> AbstractContextManager[None]:
    """Send the log lines of the code under test to the journal, whatever the log level of the
    process."""
    return diverted_logs(
        LogHandler(recorder), "sfusion_tools", "sfusion.fakes", level=logging.WARNING
    )


_LONGEST_LINE = 2**20
"""Bytes of an event; chosen: the longest texts of an event are cut far below that."""
_ROUND_TRIPS = 9
"""Comparisons of two clocks, of which the fastest counts; chosen: one of them is undisturbed."""
_CONNECT_SECONDS = 30.0
"""How long to wait for the journal's server; chosen: it runs already."""
_LAST_SECONDS = 10.0
"""How long to wait for the end of a process that does not end; chosen."""


@dataclass(frozen=True, slots=True)
class JournalAddress:
    """What a process needs to know to send its events."""

    host: str
    port: int
    token: str
    zero: float
    """When the journal begins, by the clock of the server's machine."""
    machine: str
    names: dict[str, str]
    """Names to write instead of addresses."""
    secrets: dict[str, str]
    """Texts that must not reach the journal, and their names."""


def this_machine() -> str:
    """Return an id that differs between machines whose clocks differ."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()


class _RemoteJournal(Journal):
    """Sends events to the server instead of keeping them."""

    def __init__(self, address: JournalAddress, process: str) -> None:
        super().__init__({})
        self._lock = threading.Lock()
        self._socket = socket.create_connection(
            (address.host, address.port), timeout=_CONNECT_SECONDS
        )
        # Or a fork's life would seem that of this process.
        os.register_at_fork(after_in_child=self._socket.close)
        self.offset = 0.0
        other_clock = address.machine != this_machine()
        self.add(
            {
                "token": address.token,
                "process": process,
                "at": round(time.monotonic() - address.zero, 6),
            }
        )
        if other_clock:
            self._compare_clocks()

    def close(self) -> None:
        with self._lock:
            self._socket.close()

    def add(self, event: Event) -> None:
        line = encode_line(event).encode()
        with self._lock:
            if self._socket.fileno() >= 0:
                try:
                    self._socket.sendall(line)
                except OSError:
                    self._socket.close()  # the server is gone; this process carries on

    def _compare_clocks(self) -> None:
        answers = self._socket.makefile("rb")
        best = float("inf")
        for _ in range(_ROUND_TRIPS):
            asked = time.monotonic()
            self.add({"time": None})
            theirs = float(answers.readline())
            back = time.monotonic()
            if back - asked < best:
                best = back - asked
                self.offset = theirs - (asked + back) / 2
        self.add({"clock_error": best / 2})


class RemoteRecorder(Recorder):
    """The recorder of another process, with the clock, names and secrets of the server."""

    def __init__(self, address: JournalAddress, process: str) -> None:
        remote = _RemoteJournal(address, process)
        super().__init__(remote, time.monotonic, address.zero - remote.offset)
        self._remote = remote
        for text, name in address.names.items():
            self.alias(text, name)
        for secret, name in address.secrets.items():
            self.keep_secret(secret, name)

    def close(self) -> None:
        """Stop recording and close the connection."""
        self.on = False
        self._remote.close()


@dataclass
class JournalServer:
    """Receives the events of all processes and reports when a process connects or disconnects."""

    on_event: Callable[[Event], None]
    on_connect: Callable[[str, float], None]
    on_disconnect: Callable[[str], None]
    host: str = "127.0.0.1"

    def __post_init__(self) -> None:
        self._token = secrets.token_urlsafe(16)
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[Any], None] = {}
        self.zero = time.monotonic()
        self.clock_error = 0.0
        """By how many seconds the times of other machines may be wrong; 0 when there are none."""

    async def __aenter__(self) -> JournalServer:
        self._server = await asyncio.start_server(self._serve, self.host, 0, limit=_LONGEST_LINE)
        return self

    async def __aexit__(self, problem: object, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        if problem is None and self._connections:
            # The processes have been ended, but what they sent before may not have been read yet.
            await asyncio.wait(list(self._connections), timeout=_LAST_SECONDS)
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def address(self, names: dict[str, str], hidden: dict[str, str]) -> JournalAddress:
        """Return what other processes need to connect."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return JournalAddress(
            host=self.host,
            port=port,
            token=self._token,
            zero=self.zero,
            machine=this_machine(),
            names=names,
            secrets=hidden,
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._connections[connection] = None
        process = None
        try:
            hello = json.loads(await reader.readline() or b"{}")
            if not hmac.compare_digest(str(hello.get("token", "")).encode(), self._token.encode()):
                return
            process = str(hello["process"])
            self.on_connect(process, hello["at"])
            # A line without an end was cut off by the death of its process and is dropped.
            while (line := await reader.readline()).endswith(b"\n"):
                data = json.loads(line)
                if "event" in data:
                    self.on_event(data)
                elif "clock_error" in data:
                    self.clock_error = max(self.clock_error, data["clock_error"])
                else:
                    writer.write(f"{time.monotonic()}\n".encode())
        except (ConnectionError, ValueError, asyncio.CancelledError):
            # the process died in the middle of a line, was not one of ours, or the run is over
            pass
        finally:
            self._connections.pop(connection, None)
            writer.close()
            if process is not None:
                self.on_disconnect(process)
