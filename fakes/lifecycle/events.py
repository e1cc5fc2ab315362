"""What a ledger of sandboxes writes into a journal. docs/journal.md describes the keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Required, TypedDict

EventName = Literal[
    "sandbox_created",
    "sandbox_adopted",
    "sandbox_refused",
    "sandbox_ready",
    "sandbox_died",
    "sandbox_renewed",
    "sandbox_left",
    "sandbox_deleting",
    "sandbox_deleted",
    "file_written",
    "file_read",
]
DeathCause = Literal["ttl", "idle", "death", "fault"]
"""Its time was up; it was not used; it died by itself; a fault killed it."""
RefusalCause = Literal["live", "rate"]


class EventCause(NamedTuple):
    """The request because of which something happens."""

    call: str
    attempt: int


class EventDetails(TypedDict, total=False):
    """What an event says beside its time, its name and its sandbox."""

    name: str
    ttl: float | None
    """Seconds that a created or renewed sandbox runs at most, None without a limit."""
    idle: float | None
    """Seconds without use after which it ends."""
    why: DeathCause | RefusalCause
    state: str
    """In which state it was when it died, or when its delete was asked for."""
    retry_after: str
    path: str
    """Of a file, as a digest."""
    writer: str
    """Who wrote the file that was written or read."""


class LifecycleEvent(EventDetails, total=False):
    """An event of a ledger.

    ``call`` and ``attempt`` are those of the request that caused it, as in that request's events
    ``arrived`` and ``answered``; what happens by itself has neither.
    """

    at: Required[float]
    source: Required[Literal["server"]]
    event: Required[EventName]
    call: str
    attempt: int
    instance: str
    """The id of the sandbox; all events but a refusal have it."""
    episode: str
    """The tag under which the sandbox was created; empty if the client gave none."""


LifecycleSink = Callable[[LifecycleEvent], None]
