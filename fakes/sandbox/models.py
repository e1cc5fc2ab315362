"""Server models: how a sandbox, or the gateway before it, behaves under load. Pure: time comes in, nothing waits."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from sfusion.fakes.errors import SandboxSetupError
from sfusion.fakes.faults import Seconds
from sfusion_tools.errors import near


class _Load(BaseModel):
    """What every model can have: contention."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    kind: str
    cores: float | None = Field(default=None, gt=0)
    """Programs in flight share this many cores; None: each has its own."""
    spawn_cost: Seconds = 0.0
    """Seconds the event loop is blocked for each program started; pings wait for it too (the real one: about 40 ms)."""

    def as_data(self) -> dict[str, Any]:
        """The model as it could be written in YAML, always with its kind."""
        return self.model_dump(mode="json", exclude_defaults=True) | {"kind": self.kind}


class Unbounded(_Load):
    """What the real server does: everybody is let in, and everything gets slower."""

    kind: Literal["unbounded"] = "unbounded"


class Queue(_Load):
    """A bounded server: so many work at a time, so many wait, the rest are turned away."""

    kind: Literal["queue"] = "queue"
    workers: int = Field(default=32, ge=1)
    waiting: int | None = Field(default=None, ge=0)
    """How many may wait; None: any number."""
    status: int = Field(default=503, ge=400, le=599)
    retry_after: Seconds | None = None


class Quota(_Load):
    """A gateway with a quota: so many in flight, so many per second, 429 with Retry-After beyond."""

    kind: Literal["quota"] = "quota"
    in_flight: int | None = Field(default=None, ge=1)
    per_second: float | None = Field(default=None, gt=0)
    burst: int | None = Field(default=None, ge=1)
    """How many may come at once under ``per_second``; by default one second's worth."""
    status: int = Field(default=429, ge=400, le=599)
    retry_after: Seconds | None = None
    """By default the time until the quota would admit again, at least one second for ``in_flight``."""


ServerModel = Annotated[Unbounded | Queue | Quota, Field(discriminator="kind")]
_ADAPTER: TypeAdapter[Unbounded | Queue | Quota] = TypeAdapter(ServerModel)
_SHORT = {"queue": "workers", "quota": "in_flight"}
_KINDS: dict[str, type[_Load]] = {"unbounded": Unbounded, "queue": Queue, "quota": Quota}


def read_model(value: Any) -> Unbounded | Queue | Quota:
    """Read a model: None, a name, ``{quota: 8}``, ``{queue: 32}`` or the full mapping with ``kind``."""
    if isinstance(value, Unbounded | Queue | Quota):
        return value
    if value is None:
        return Unbounded()
    if isinstance(value, str):
        value = {"kind": value}
    if isinstance(value, dict) and "kind" not in value:
        short = [key for key in _SHORT if key in value]
        if len(short) == 1:
            name = short[0]
            value = {"kind": name, _SHORT[name]: value[name], **{k: v for k, v in value.items() if k != name}}
    kind = str(value.get("kind")) if isinstance(value, dict) else ""
    if kind not in _KINDS:
        raise SandboxSetupError(f"a server model has a kind, found {value!r}; {near(kind, _KINDS)}")
    try:
        return _ADAPTER.validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:])
        if first["type"] == "extra_forbidden":
            known = ", ".join(_KINDS[kind].model_fields)
            raise SandboxSetupError(f"model {kind}: unknown key {place!r}; known are {known}") from error
        raise SandboxSetupError(f"model {kind}: {place}: {first['msg']}, found {first['input']!r}") from error


@dataclass(slots=True)
class QuotaCounter:
    """The state of a quota: permits in flight and a token bucket."""

    model: Quota
    in_flight: int = 0
    tokens: float = math.inf
    filled_at: float = 0.0

    def __post_init__(self) -> None:
        self.tokens = self._size()

    def _size(self) -> float:
        if self.model.per_second is None:
            return math.inf
        return float(self.model.burst or max(1, math.floor(self.model.per_second)))

    def admit(self, now: float) -> float | None:
        """None when let in, else the seconds after which to come back."""
        model = self.model
        if model.in_flight is not None and self.in_flight >= model.in_flight:
            return 1.0 if model.retry_after is None else model.retry_after
        if model.per_second is not None:
            self.tokens = min(self._size(), self.tokens + (now - self.filled_at) * model.per_second)
            self.filled_at = now
            if self.tokens < 1.0:
                wait = (1.0 - self.tokens) / model.per_second
                return wait if model.retry_after is None else model.retry_after
            self.tokens -= 1.0
        self.in_flight += 1
        return None

    def leave(self) -> None:
        """One of those let in is done."""
        self.in_flight -= 1


@dataclass(slots=True)
class QueueLine:
    """The state of a queue: who works, who waits, first come first served."""

    model: Queue
    working: int = 0
    waiting: deque[object] = field(default_factory=deque)

    def enter(self, who: object) -> Literal["in", "wait", "away"]:
        """Work now, wait, or go away."""
        if self.working < self.model.workers and not self.waiting:
            self.working += 1
            return "in"
        if self.model.waiting is not None and len(self.waiting) >= self.model.waiting:
            return "away"
        self.waiting.append(who)
        return "wait"

    def give_up(self, who: object) -> None:
        """One who waits is gone."""
        if who in self.waiting:
            self.waiting.remove(who)

    def leave(self) -> object | None:
        """One is done; gives who works next."""
        if self.waiting:
            return self.waiting.popleft()
        self.working -= 1
        return None


@dataclass(slots=True)
class SharedCores:
    """Programs sharing C cores: with n in flight each runs at the speed min(1, C/n)."""

    cores: float
    left: dict[int, float] = field(default_factory=dict)
    """Seconds of work left for each program."""
    at: float = 0.0

    def add(self, program: int, work: float, now: float) -> None:
        """A program starts."""
        self.advance(now)
        self.left[program] = work

    def remove(self, program: int, now: float) -> None:
        """A program ended or was stopped."""
        self.advance(now)
        self.left.pop(program, None)

    def advance(self, now: float) -> None:
        """Let everybody work until ``now``."""
        done = (now - self.at) * self.speed()
        self.at = now
        if done > 0:
            for program in self.left:
                self.left[program] -= done

    def speed(self) -> float:
        """How fast each program runs now."""
        return min(1.0, self.cores / len(self.left)) if self.left else 1.0

    def next_end(self) -> tuple[float, list[int]] | None:
        """When the next programs end if nobody comes or goes, and which ones."""
        if not self.left:
            return None
        least = min(self.left.values())
        ending = [program for program, left in self.left.items() if left <= least + 1e-12]
        return self.at + max(0.0, least) / self.speed(), ending


@dataclass(slots=True)
class BusyLoop:
    """An event loop that starting programs blocks: turns are taken one after the other."""

    free_at: float = 0.0

    def take(self, now: float, cost: float) -> float:
        """Seconds until a turn of ``cost`` seconds that is asked for now is over."""
        self.free_at = max(now, self.free_at) + cost
        return self.free_at - now

    def wait(self, now: float) -> float:
        """Seconds until somebody who only wants to be heard is heard."""
        return max(0.0, self.free_at - now)
