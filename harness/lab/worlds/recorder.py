"""Writes events to a journal, with names instead of addresses and without secrets."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from sfusion.harness.lab.journal import SHOWN, Event, Journal
from sfusion.harness.lab.worlds.replacing import diverted_logs

SHORTEST_SECRET = 4
"""Characters of a secret that is searched for in texts."""


class Recorder:
    """Records events with the time of a clock. Secrets are removed from texts, and the event is marked as leaking."""

    def __init__(self, journal: Journal, clock: Callable[[], float], zero: float | None = None) -> None:
        """The recording begins at ``zero`` of the clock; None for now."""
        self.journal = journal
        self._clock = clock
        self._began = clock() if zero is None else zero
        self._names: dict[str, str] = {}
        self._secrets: dict[str, str] = {}
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
        """Watch for a text that must not be written, unless it is so short that it occurs by chance."""
        if len(secret) < SHORTEST_SECRET:
            self.short_secrets.append(name)
        else:
            self._secrets[secret] = name
            self._shortest = min(self._shortest, len(secret))

    @property
    def secrets(self) -> int:
        """Return how many secrets are watched for."""
        return len(self._secrets)

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
                if key == "text":  # the whole text is searched for secrets, but only its beginning is kept
                    record[key] = value[:SHOWN]
        if record.get("pieces"):
            clean = self._clean
            record["pieces"] = [clean(one, leaked) if isinstance(one, str) else one for one in record["pieces"]]
        if leaked:
            record["leaked"] = leaked
        self.journal.add(record)

    def _clean(self, text: str, leaked: list[str]) -> str:
        for address, name in self._names.items():
            text = text.replace(address, name)
        for secret, name in self._secrets.items():
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
        place = {"place": f"{record.filename}:{record.funcName}"} if record.levelno >= logging.ERROR else {}
        self._recorder.note("world", "log", level=record.levelname.lower(), text=record.getMessage(), **place)


def recorded_logs(recorder: Recorder) -> AbstractContextManager[None]:
    """Send the log lines of the code under test to the journal, whatever the log level of the process."""
    return diverted_logs(LogHandler(recorder), "sfusion_tools", "sfusion.fakes", level=logging.WARNING)
