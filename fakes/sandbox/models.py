"""Server models: how a sandbox, or a gateway before it, behaves under load.

Pure: time is an argument.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sfusion_tools.errors import near, refusal
from sfusion_tools.limiter.pace import Bucket

from ..described import described_fields
from ..errors import SandboxSetupError
from ..faults import Seconds
from ..fields import Drawn, NotHunted, NotShrunk, Reduced

P = TypeVar("P")
_Refusal = Annotated[
    int,
    NotHunted("fault rules answer with other statuses"),
    NotShrunk("a status is a name, not an amount"),
]
_Wait = Annotated[Seconds | None, Drawn(0.2, 1.5, share=0.5)]


class _Load(BaseModel):
    """Contention, which every model can have."""

    model_config = ConfigDict(
        defer_build=True,
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
    )

    kind: str
    cores: Annotated[float | None, Drawn(1, 2, 4, share=0.25)] = Field(default=None, gt=0)
    """Number of cores that programs share; by default each program has its own."""
    spawn_cost: Annotated[Seconds, Drawn(0.005, 0.04, share=0.25)] = 0.0
    """Seconds that starting a program blocks the event loop, pings included (the real server:
    about 40 ms)."""

    def as_data(self) -> dict[str, Any]:
        """The model as it could be written in YAML, always with its kind."""
        return self.model_dump(mode="json", exclude_defaults=True) | {"kind": self.kind}


class Unbounded(_Load):
    """What the real server does: it admits every request and gets slower."""

    kind: Literal["unbounded"] = "unbounded"


class Queue(_Load):
    """A bounded server: ``workers`` requests run, ``waiting`` requests wait, the rest are turned
    away."""

    kind: Literal["queue"] = "queue"
    workers: Annotated[int, Drawn(range(1, 7)), Reduced(scales=True)] = Field(default=32, ge=1)
    waiting: Annotated[int | None, Drawn(0, 1, 2, 3, share=0.5)] = Field(default=None, ge=0)
    """How many requests may wait; by default any number."""
    status: _Refusal = Field(default=503, ge=400, le=599)
    retry_after: _Wait = None


class Quota(_Load):
    """A gateway with a quota on requests in flight and per second; 429 with Retry-After beyond
    it."""

    kind: Literal["quota"] = "quota"
    in_flight: Annotated[int | None, Drawn(range(1, 7), share=0.5), Reduced(scales=True)] = Field(
        default=None, ge=1
    )
    per_second: Annotated[float | None, Drawn(3.0, 12.0, share=0.5)] = Field(default=None, gt=0)
    burst: Annotated[int | None, Drawn(1, 8, share=0.5)] = Field(default=None, ge=1)
    """How many may arrive at once under ``per_second``; by default one second's worth."""
    status: _Refusal = Field(default=429, ge=400, le=599)
    retry_after: _Wait = None
    """By default the time until the quota would admit again, at least one second for
    ``in_flight``."""


_SIZES = {"queue": "workers", "quota": "in_flight"}
_Model = Unbounded | Queue | Quota
_KINDS: dict[str, type[_Model]] = {"unbounded": Unbounded, "queue": Queue, "quota": Quota}


def read_model(value: Any) -> _Model:
    """Read a model: None, the name of a kind, or a mapping.

    A mapping is written ``{kind: quota, in_flight: 8}``.
    """
    if isinstance(value, _Model):
        return value
    if value is None:
        return Unbounded()
    if isinstance(value, str):
        value = {"kind": value}

    kind = ""
    if isinstance(value, dict):
        _refuse_kind_as_key(value)
        kind = str(value.get("kind"))
    if kind not in _KINDS:
        raise SandboxSetupError(f"a server model has a kind, found {value!r}; {near(kind, _KINDS)}")
    try:
        return _KINDS[kind].model_validate(value)
    except ValidationError as error:
        wrong = refusal(error.errors()[0], described_fields(_KINDS[kind]))
        raise SandboxSetupError(f"model {kind}: {wrong}") from error


def _refuse_kind_as_key(value: dict[Any, Any]) -> None:
    """Raise SandboxSetupError for ``{quota: 8}``, and say how it is written."""
    if "kind" in value:
        return
    for kind, size in _SIZES.items():
        if kind in value:
            raise SandboxSetupError(
                f"a server model has a kind: write {{kind: {kind}, {size}: {value[kind]}, ...}}"
            )


_SHORT_WAIT = 1.0
"""Seconds that a quota on requests in flight asks to wait (chosen: when one ends is not known)."""


@dataclass(slots=True)
class QuotaCounter:
    """The state of a quota: permits in flight and a token bucket."""

    model: Quota
    in_flight: int = 0
    bucket: Bucket | None = None

    def __post_init__(self) -> None:
        if self.model.per_second is not None:
            self.bucket = Bucket(self.model.per_second, self.model.burst, now=0.0)

    def admit(self, now: float) -> float | None:
        """Admit a request (None), or return the seconds after which to retry."""
        model = self.model
        if model.in_flight is not None and self.in_flight >= model.in_flight:
            return _SHORT_WAIT if model.retry_after is None else model.retry_after
        if self.bucket is not None and not self.bucket.take(now):
            if model.retry_after is not None:
                return model.retry_after
            return self.bucket.ready_at(now) - now
        self.in_flight += 1
        return None

    def leave(self) -> None:
        self.in_flight -= 1


@dataclass(slots=True)
class QueueLine:
    """The state of a queue: first come, first served."""

    model: Queue
    working: int = 0
    waiting: deque[object] = field(default_factory=deque)

    def enter(self, waiter: object) -> Literal["in", "wait", "away"]:
        """Run now, wait, or be turned away."""
        if self.working < self.model.workers and not self.waiting:
            self.working += 1
            return "in"
        if self.model.waiting is not None and len(self.waiting) >= self.model.waiting:
            return "away"
        self.waiting.append(waiter)
        return "wait"

    def give_up(self, waiter: object) -> None:
        if waiter in self.waiting:
            self.waiting.remove(waiter)

    def leave(self) -> object | None:
        """End a running request; return the waiter that runs next."""
        if self.waiting:
            return self.waiting.popleft()
        self.working -= 1
        return None


@dataclass(slots=True)
class SharedCores(Generic[P]):
    """Programs that share C cores: with n in flight each runs at speed min(1, C/n).

    All run at the same speed, so each ends when the work that every program has been given reaches
    a fixed number: what had been given when it came, plus its own. Programs that end together have
    equal numbers, exactly.
    """

    cores: float
    given: float = 0.0
    """Seconds of work that a program would have been given if it had run from the start."""
    ends: dict[P, float] = field(default_factory=dict)
    """At how much given work each program ends."""
    at: float = 0.0

    def add(self, program: P, work: float, now: float) -> None:
        self._advance(now)
        self.ends[program] = self.given + work

    def remove(self, program: P, now: float) -> None:
        """Take out a program, whether or not it has ended."""
        if program in self.ends:
            self._advance(now)
            del self.ends[program]

    def end(self, programs: list[P], now: float) -> None:
        """Take out programs that ``next_end`` named for ``now``."""
        self.given = self.ends[programs[0]]  # what it would be without rounding
        self.at = now
        for program in programs:
            del self.ends[program]

    def _advance(self, now: float) -> None:
        self.given += (now - self.at) * self._speed()
        self.at = now

    def _speed(self) -> float:
        return min(1.0, self.cores / len(self.ends)) if self.ends else 1.0

    def next_end(self) -> tuple[float, list[P]] | None:
        """When the next programs end if none is added or removed, and which ones."""
        if not self.ends:
            return None
        least = min(self.ends.values())
        ending = [program for program, end in self.ends.items() if end == least]
        left = max(0.0, least - self.given) / self._speed()
        return self.at + left, ending


@dataclass(slots=True)
class BusyLoop:
    """An event loop that is blocked while programs are started, one at a time."""

    free_at: float = 0.0

    def take(self, now: float, cost: float) -> float:
        """Seconds until a program whose start takes ``cost`` seconds has been started."""
        self.free_at = max(now, self.free_at) + cost
        return self.free_at - now

    def wait(self, now: float) -> float:
        """Seconds until the loop is free."""
        return max(0.0, self.free_at - now)
