"""The facts of a trial: what was asked, sent, answered, told and left behind. Pure data, whatever
stage played it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from .client import Settings, Told, TrialAsk
from .plan import Scene


@dataclass
class SentRequest:
    """One request as a fake sandbox received it, and what became of it."""

    at: float
    mark: str
    """The mark in its code; a digest of the body if there is none."""
    sandbox: int
    """Index of the sandbox in ``Settings.urls``."""
    method: str
    path: str
    headers: Mapping[str, str]
    """With names in lower case."""
    body: bytes
    test: str = ""
    """The number of the test, of a reward function's call."""
    in_flight: int = 1
    """Requests at this sandbox when it arrived, this one included."""
    execution: int | None = None
    """Which execution of its program this was, counted from 0; None if the program did not begin to
    run."""
    faults: tuple[str, ...] = ()
    """The kinds of faults that struck it."""
    ended: float | None = None
    """When the fake was done with it; None if it never was."""
    status: int = 0
    """Of the answer; 0 without one."""
    retry_after: float | None = None
    """Seconds that the answer asked to wait."""
    dated: bool = False
    """It asked for them with a date, whose unit is a second."""
    complaint: str = ""
    """What the sandbox says of a request that it does not understand."""
    client_gone: bool = False
    """The client had disconnected when the fake was done with it."""

    @cached_property
    def fields(self) -> dict[str, Any]:
        """Return the JSON of the body; empty if it is not an object."""
        try:
            data = json.loads(self.body)
        except ValueError:
            return {}
        return data if isinstance(data, dict) else {}


@dataclass
class PlayedCall:
    """One call: what was asked, and what came back."""

    ask: TrialAsk
    asked_at: float
    ended_at: float | None = None
    """None if it had not ended when the scene was broken off."""
    told: Told | None = None
    """None if it was cancelled or did not end."""
    cancelled: bool = False
    """The stage cancelled it."""
    returned: Mapping[str, Any] | None = field(default=None, repr=False)
    """The very fields that it returned, of which ``told`` has a copy."""
    later: Mapping[str, Any] | None = None
    """The fields that it had returned, read again at the end of the scene, if they are not the same
    any more."""


@dataclass
class PlayedScene:
    """Everything that happened in one scene."""

    scene: Scene
    settings: Settings
    calls: list[PlayedCall] = field(default_factory=list)
    requests: list[SentRequest] = field(default_factory=list)
    other_requests: list[SentRequest] = field(default_factory=list)
    """Those that ask for no work, such as pings."""
    began: float = 0.0
    ended: float = 0.0
    divided: bool = False
    """Several clients shared its calls, each with a sandbox and a limit of its own."""
    broken_off: str = ""
    """Why the scene could not be played to its end."""
    busy: int = 0
    """Requests in flight when the last call had ended."""
    tasks_left: tuple[str, ...] = ()
    """Tasks of the client that ran on after its end."""
    connections_left: int = 0
    """Open connections when the last call had ended, before the client's end."""
    instances_left: tuple[str, ...] = ()
    """Released instances of which the client still holds something."""
    printed: str = ""
    """Standard output and standard error of the client."""
    logged: str = ""
    """Its log records, down to DEBUG."""
    raised_at_end: str = ""
    """What the client's ``begin`` or ``end`` raised."""


@dataclass
class Record:
    """The facts of a whole trial."""

    stage: str
    """``virtual`` or ``wall``."""
    takes: frozenset[str]
    tolerance: float = 0.0
    """Seconds within which times and orders are not told apart: 0 in virtual time."""
    scenes: dict[str, PlayedScene] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    """Scenes that were not played, with the reason."""
    unplayable: str = ""
    """Why this stage cannot play the client at all, such as threads in virtual time."""
