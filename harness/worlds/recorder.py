"""Writes what happens into a journal: names instead of addresses, and no secrets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from sfusion.harness.journal import Journal
from sfusion.harness.scenarios.program import SHOWN


class Recorder:
    """Notes events at the time of a clock. A secret found in a text is taken out and the event marked."""

    def __init__(self, journal: Journal, clock: Callable[[], float]) -> None:
        self.journal = journal
        self._clock = clock
        self._began = clock()
        self._names: dict[str, str] = {}
        self._secrets: dict[str, str] = {}
        self.on = True

    def call_it(self, address: str, name: str) -> None:
        """From now on write the name where the address stands: addresses differ from run to run."""
        self._names[address] = name

    def keep_secret(self, secret: str, name: str) -> None:
        """A text that must not reach anybody."""
        self._secrets[secret] = name

    @property
    def secrets(self) -> int:
        """How many secrets are watched for."""
        return len(self._secrets)

    def now(self) -> float:
        """Seconds since the recording began."""
        return self._clock() - self._began

    def note(self, source: str, event: str, **facts: Any) -> None:
        """Something happened."""
        if not self.on:
            return
        leaked: list[str] = []
        for key, value in facts.items():
            if type(value) is str:
                clean = self._clean(value, leaked)
                # All of a text is searched for secrets, its beginning is kept.
                facts[key] = clean[:SHOWN] if key == "text" else clean
            elif type(value) is float:
                facts[key] = round(value, 6)
        if leaked:
            facts["leaked"] = leaked
        self.journal.note(self.now(), source, event, **facts)

    def server(self, event: Mapping[str, Any]) -> None:
        """An event of a fake, as its journal gives it."""
        facts = {key: value for key, value in event.items() if key not in ("at", "source", "event")}
        self.note("server", str(event["event"]), **facts)

    def _clean(self, text: str, leaked: list[str]) -> str:
        for address, name in self._names.items():
            if address in text:
                text = text.replace(address, name)
        for secret, name in self._secrets.items():
            if secret in text:
                text = text.replace(secret, "<secret>")
                leaked.append(name)
        return text


class LogNotes(logging.Handler):
    """Log lines of the stack, from warnings on, as events of the journal."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(logging.WARNING)
        self._recorder = recorder

    def emit(self, record: logging.LogRecord) -> None:
        """Note one line."""
        self._recorder.note("world", "log", level=record.levelname.lower(), text=record.getMessage())
