"""The guard: training must not learn for hours from a sandbox that does not work.

``GuardCore`` has the rules, without a clock and without I/O. ``SandboxGuard`` adds a lock, the log
and the error; all clients of a process that use the same sandboxes share one.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from sfusion_tools._loops import DeferringLock, tells_real_time
from sfusion_tools.errors import GuardTripped
from sfusion_tools.outcome import FAILURES, Outcome
from sfusion_tools.runtime import LoopResource, runtime
from sfusion_tools.sandbox.endpoints import base_urls, redact
from sfusion_tools.sandbox.result import CallResult

logger = logging.getLogger(__name__)

PROBES = 5
"""How many calls decide whether the sandbox works again. Chosen: one may fail by chance, and five
calls of a broken sandbox cost little."""
_LIMITER = "the limiter"


class GuardSettings(BaseModel):
    """The key ``guard`` of a tool config."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    window: int = Field(
        200, ge=1, strict=True, description="how many of the latest calls are judged"
    )
    infrastructure_at_most: float = Field(
        0.3, ge=0, lt=1, description="share of them that may end with an infrastructure outcome"
    )
    then: Literal["warn", "fail"] = Field(
        "warn",
        description=(
            "what happens above that share: one error in the log, or also "
            "GuardTripped, which stops the job"
        ),
    )
    min_calls: int = Field(
        20, ge=1, strict=True, description="calls to wait for before judging; at most window"
    )
    probe_after: float = Field(
        30.0,
        gt=0,
        allow_inf_nan=False,
        description="seconds until calls are tried again, and between further tries",
    )

    @property
    def enough(self) -> int:
        return min(self.min_calls, self.window)


_SILENT = frozenset({Outcome.CANCELLED, Outcome.BAD_ARGUMENTS})
"""Outcomes of calls that say nothing about the sandbox."""


@dataclass(frozen=True, slots=True)
class GuardedCall:
    """A call that was let through."""

    epoch: int
    """How many times the guard had recovered when the call began."""
    probe: int = 0
    """The round of probes that the call belongs to, 0 for none."""


@dataclass(frozen=True, slots=True)
class Trip:
    """The calls that tripped a guard."""

    outcomes: dict[Outcome, int]
    failed_at: dict[str, int]
    """Infrastructure failures by endpoint, the worst first."""
    allowed: float

    def __str__(self) -> str:
        calls = sum(self.outcomes.values())
        failed = sum(count for outcome, count in self.outcomes.items() if outcome.is_infrastructure)
        counts = ", ".join(f"{count} {outcome.value}" for outcome, count in self.outcomes.items())
        return (
            f"{failed} of the last {calls} calls ({failed / calls:.0%}, allowed {self.allowed:.0%})"
            f" failed for reasons that are not the program's: {counts}"
        )


class GuardCore:
    """Judges the outcomes of the latest calls; time comes in as an argument.

    A call is judged in the epoch in which it began: one that began before the sandbox recovered
    says nothing about it afterwards.
    """

    def __init__(self, settings: GuardSettings) -> None:
        self._settings = settings
        self._probes = min(PROBES, settings.enough)
        self._recent: deque[tuple[Outcome, str]] = deque(maxlen=settings.window)
        self._failed = 0
        self._epoch = 0
        self._ordinary = GuardedCall(0)
        self.trip: Trip | None = None
        """Why the guard is open; None while it is closed."""
        self._probe_at = 0.0
        self._round = 0
        self._probing = 0
        self._probed: list[bool] = []

    def begin(self, now: float) -> GuardedCall | None:
        """Let a call through, or return None to refuse it."""
        if self.trip is None:
            return self._ordinary
        # None before probe_at; then more as time passes, because those that are out may be lost
        # with their event loop.
        rounds = 1 + (now - self._probe_at) // self._settings.probe_after
        if self._probing + len(self._probed) < self._probes * rounds:
            self._probing += 1
            return GuardedCall(self._epoch, self._round)
        return None if self._settings.then == "fail" else self._ordinary

    def end(self, call: GuardedCall, now: float, outcome: Outcome, endpoint: str) -> bool:
        """Count how a call ended; True if that trips the guard or closes it again."""
        if call.epoch != self._epoch:
            return False
        silent = outcome in _SILENT
        if self.trip is None:
            return not silent and self._trips(now, outcome, endpoint)
        if call.probe != self._round:
            return False
        self._probing -= 1
        if not silent:
            self._probed.append(outcome.is_infrastructure)
        return self._probes_trip(now)

    def _trips(self, now: float, outcome: Outcome, endpoint: str) -> bool:
        if len(self._recent) == self._settings.window:
            self._failed -= self._recent[0][0].is_infrastructure
        self._recent.append((outcome, endpoint))
        self._failed += outcome.is_infrastructure
        calls = len(self._recent)
        allowed = self._settings.infrastructure_at_most
        if calls < self._settings.enough or self._failed / calls <= allowed:
            return False
        outcomes = Counter(outcome for outcome, _ in self._recent)
        failed_at = Counter(
            endpoint for outcome, endpoint in self._recent if outcome.is_infrastructure
        )
        self.trip = Trip(dict(outcomes.most_common()), dict(failed_at.most_common()), allowed)
        self._wait(now)
        return True

    def _wait(self, now: float) -> None:
        self._probe_at = now + self._settings.probe_after
        self._round += 1
        self._probing = 0
        self._probed.clear()

    def _probes_trip(self, now: float) -> bool:
        if sum(self._probed) / self._probes > self._settings.infrastructure_at_most:
            self._wait(now)
        elif len(self._probed) >= self._probes:
            self.trip = None
            self._recent.clear()
            self._failed = 0
            self._epoch += 1
            self._ordinary = GuardedCall(self._epoch)
            return True
        return False


class SandboxGuard(LoopResource):
    """The guard of a set of sandboxes, for calls from any thread and event loop."""

    def __init__(self, settings: GuardSettings, endpoints: Sequence[str]) -> None:
        """``endpoints`` are redacted URLs."""
        self._settings = settings
        self.endpoints = tuple(endpoints)
        self._core = GuardCore(settings)
        self._lock = DeferringLock()

    def begin(self, now: float) -> GuardedCall:
        """Begin a call, to be given to ``end``; raise GuardTripped if it must not be made."""
        with self._lock:
            call = self._core.begin(now)
            trip = self._core.trip
        if call is None:
            raise GuardTripped(
                f"{self._text(trip)}. This call was not made; calls are tried again from time to "
                "time"
            )
        return call

    def end(self, call: GuardedCall, now: float, result: CallResult | None) -> None:
        """Count how a call ended, None if that says nothing.

        Raise GuardTripped if it failed with the others.
        """
        if result is None:
            self._lock.defer(partial(self._core.end, call, now, Outcome.CANCELLED, ""))
            return
        place = result.attempts[-1].endpoint if result.attempts else _LIMITER
        with self._lock:
            changed = self._core.end(call, now, result.outcome, place)
            trip = self._core.trip
        stops = self._settings.then == "fail"
        if changed and trip is None:
            logger.warning("guard: the sandbox works again: %s", ", ".join(self.endpoints))
        elif changed:
            next_calls = "Training goes on, and must leave such samples out"
            if stops:
                next_calls = "Calls now raise GuardTripped"
            logger.error("guard: %s. %s", self._text(trip), next_calls)
        if trip is not None and stops and result.outcome in FAILURES:
            raise GuardTripped(self._text(trip))

    def _text(self, trip: Trip | None) -> str:
        failed_at = trip.failed_at if trip is not None else {}
        ranked = sorted(
            {*self.endpoints, *failed_at}, key=lambda place: (-failed_at.get(place, 0), place)
        )
        places = ", ".join(f"{failed_at.get(place, 0)} at {place}" for place in ranked)
        worst = ranked[0]
        if worst == _LIMITER:
            command = "limiter"
        elif "***" in worst:
            command = "doctor URL"  # a masked address cannot be asked
        else:
            command = f"doctor {worst}"
        return f"{trip}. Failures: {places}. To find out why, run: sfusion {command}"


@dataclass(frozen=True, slots=True)
class _GuardKey:
    """What the clients of one guard have in common.

    It is never shown, because it may contain passwords.
    """

    settings: GuardSettings
    urls: tuple[str, ...] = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(repr=False)


def shared_guard(
    settings: GuardSettings, urls: str | Sequence[str], headers: Mapping[str, str] | None = None
) -> Callable[[], SandboxGuard]:
    """Return what gives the running loop's guard.

    All clients of this process with the same settings, sandboxes and headers share it.
    """
    names = sorted((name.lower(), value) for name, value in (headers or {}).items())
    key = _GuardKey(settings, tuple(sorted(base_urls(urls))), tuple(names))
    labels = tuple(dict.fromkeys(map(redact, key.urls)))

    def make() -> SandboxGuard:
        return SandboxGuard(settings, labels)

    def guard() -> SandboxGuard:
        scope = runtime.scope()
        return scope.get(
            key, lambda: runtime.shared(key, make) if tells_real_time(scope.loop) else make()
        )

    return guard
