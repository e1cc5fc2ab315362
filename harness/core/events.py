"""The events of a journal that promises read, with the keys that they have.

docs/journal.md describes them all. An event is a mapping; these types say what is in it, so that a
misspelt key is found before a run is judged. Keys beyond the first three may be absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Required, TypedDict

AnyEvent = Mapping[str, Any]
"""An event of any kind, as evidence."""


class _Common(TypedDict, total=False):
    at: Required[float]
    """Seconds since the start of the run."""
    source: Required[str]
    event: Required[str]
    call: str
    worker: str


class BeganEvent(TypedDict, total=False):
    """The first event of the world: the settings of the run. Empty if the journal has none."""

    at: float
    source: str
    event: str
    calls: int
    """How many calls the scenario makes."""
    sandboxes: int
    limit: int | None
    """The limit on attempts in flight, as far as the tool states one."""
    pace: tuple[float, float] | None
    """Requests per second, and how many may come at once."""
    lease: float
    foreign: bool
    """Is the tool of another class than ours?"""
    asks: dict[str, Any]
    """Fields of every request."""
    longest_text: int | None
    secrets: int
    short_secrets: list[str]
    queues: bool
    loss: float
    slow_link: float
    time_scale: float
    face: str
    """The service whose sandboxes live and die."""
    episodes: int
    """How many episodes the scenario has."""


class CalledEvent(_Common, total=False):
    """The world makes a call."""

    intent: dict[str, Any]
    """What its program does when nothing goes wrong."""
    asked: dict[str, Any]
    """Fields of its request beyond those of every request."""
    allowed: float | None
    """Seconds of its deadline."""


class ReturnedEvent(_Common, total=False):
    """A call returned, or the tool raised."""

    outcome: str | None
    infrastructure: bool | None
    """Does the tool say that the infrastructure failed?"""
    text: str
    """The first characters of what the model reads."""
    chars: int
    """Characters of all of it."""
    pieces: Any
    """All of a longer text, packed."""
    extras: str | None
    """The outcome that verl's trainer gets."""
    reward: float | None
    step_reward: float | None
    waited: float | None
    """Seconds for permits."""
    attempts: int
    exit: int | None
    raised: str
    """The type of what was raised."""
    raised_at: str | None
    """File and line."""
    raised_in: str | None
    """The function."""


class SandboxEvent(_Common, total=False):
    """A sandbox received, executed or answered a request, or a fault struck it."""

    sandbox: str | None
    attempt: int
    in_flight: int
    """Requests that the sandbox works on."""
    connection: int
    sent: dict[str, Any]
    """Fields of the request that are not as by default; texts as digests."""
    lacks: list[str]
    """Headers that it should have."""
    stopped: bool
    """Was the program stopped at its time limit?"""
    status: int
    client_gone: bool
    retry_after: str | None
    kind: str
    """The kind of a fault."""
    phase: str
    """When in the life of a request it struck."""
    what: Any
    stream: str
    size: int


class ClientEvent(_Common, total=False):
    """Our client reports what it does for a call."""

    attempt: int
    permit: str
    waited: float
    """Seconds for the permit."""
    seconds: float
    """Of a pause before the next attempt."""
    asked: float | None
    """Seconds that Retry-After asked for."""
    status: int | None
    outcome: str
    executions: int
    """How often the program may have run."""


class LimiterEvent(_Common, total=False):
    """The limiter granted a permit, or got one back."""

    permit: str
    ticket: int | None
    waiter: int
    rate_limit: int
