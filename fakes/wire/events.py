"""What a server writes into a journal: the keys of its events. docs/journal.md describes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Required

from ..faults.action import Phase, Ping, StrikeNote

Ran = Literal["no", "began", "ended"]
"""How much of a request's code has run."""


class EventNote(StrikeNote, total=False):
    """What an event says beside its time, its name and the attempt that it is about."""

    # arrived
    path: str
    in_flight: int
    connection: int
    """Which connection of the server, from 1."""
    sent: Mapping[str, Any]
    """Fields of the request that differ from the default; of a sandbox with a life cycle, `on` and
    `instance`."""
    lacks: list[str]
    """Names of headers that are missing or differ from what was expected."""

    # strike
    rule: str
    phase: Phase
    kind: str
    code_ran: str

    # finished, broken_off, upstream_failed
    stopped: bool
    """The program was stopped at its time limit."""
    why: str

    # answered, unanswered
    status: int
    client_gone: bool
    retry_after: str

    # crash, wedge, upstream
    restart_after: float | None
    ping: Ping
    url: str


class AttemptNote(EventNote, total=False):
    """What an event says beside its time and its name."""

    call: str
    attempt: int


class ServerEvent(AttemptNote, total=False):
    """An event of a server, as its journal receives it."""

    at: Required[float]
    """The time of the server's loop."""
    source: Required[Literal["server"]]
    event: Required[str]


EventSink = Callable[[ServerEvent], None]
"""Receives what happens, event by event."""
