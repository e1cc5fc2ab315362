"""The guard of the sandboxes that a tool uses, shared by all tools of a process: a lock, the log and the error."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from sfusion_tools._locks import DeferringLock
from sfusion_tools._loops import tells_real_time
from sfusion_tools.errors import GuardTripped
from sfusion_tools.outcome import Outcome
from sfusion_tools.runtime import LoopResource, runtime
from sfusion_tools.sandbox.guard import GuardCore, GuardedCall, GuardSettings, GuardState, Trip, is_failure
from sfusion_tools.sandbox.result import CallResult

logger = logging.getLogger(__name__)


class Watch:
    """Watches one call, from entering this context manager to leaving it; give it the result, if there is one.

    Raises GuardTripped, if the settings ask for it: at once for a call that is not let through, and at the end for one
    that has failed with the others.
    """

    __slots__ = ("_call", "_clock", "_guard", "_result")

    def __init__(self, guard: SandboxGuard, clock: Callable[[], float]) -> None:
        self._guard = guard
        self._clock = clock
        self._result: CallResult | None = None

    def __enter__(self) -> Watch:
        self._call = self._guard.begin(self._clock())
        return self

    def __call__(self, result: CallResult) -> None:
        self._result = result

    def __exit__(self, *_: object) -> None:
        self._guard.end(self._call, self._clock(), self._result)


class SandboxGuard(LoopResource):
    """The guard of a set of sandboxes, for calls from any thread and event loop."""

    def __init__(self, settings: GuardSettings, endpoints: Sequence[str]) -> None:
        """``endpoints`` are redacted URLs."""
        self._settings = settings
        self.endpoints = tuple(endpoints)
        self._core = GuardCore(settings)
        self._lock = DeferringLock()

    def state(self, now: float) -> GuardState:
        with self._lock:
            return self._core.state(now)

    def watch(self, clock: Callable[[], float]) -> Watch:
        """Return the context manager of one call."""
        return Watch(self, clock)

    def begin(self, now: float) -> GuardedCall:
        with self._lock:
            call, trip = self._core.begin(now), self._core.trip
        if call is None:
            raise GuardTripped(f"{self._text(trip)}. This call was not made; calls are tried again from time to time")
        return call

    def end(self, call: GuardedCall, now: float, result: CallResult | None) -> None:
        """Count how a call ended, None if that says nothing; raise GuardTripped if it failed with the others."""
        if result is None:
            self._lock.defer(partial(self._core.end, call, now, Outcome.CANCELLED, ""))
            return
        trip = self._count(call, now, result)
        if trip is not None and self._settings.then == "fail" and is_failure(result.outcome):
            raise GuardTripped(self._text(trip))

    def _count(self, call: GuardedCall, now: float, result: CallResult) -> Trip | None:
        place = result.attempts[-1].endpoint if result.attempts else "the limiter"
        with self._lock:
            changed = self._core.end(call, now, result.outcome, place)
            trip = self._core.trip
        if not changed:
            return trip
        if trip is None:
            logger.warning("guard: the sandbox works again: %s", ", ".join(self.endpoints))
        elif self._settings.then == "fail":
            logger.error("guard: %s. Calls now raise GuardTripped", self._text(trip))
        else:
            logger.error("guard: %s. Training goes on, and must mask such calls", self._text(trip))
        return trip

    def _text(self, trip: Trip | None) -> str:
        failed_at = trip.failed_at if trip is not None else {}
        ranked = sorted({*self.endpoints, *failed_at}, key=lambda place: (-failed_at.get(place, 0), place))
        places = ", ".join(f"{failed_at.get(place, 0)} at {place}" for place in ranked)
        worst = next(place for place in ranked if place in self.endpoints)
        return f"{trip}. Failures: {places}. To find out why, run: sfusion doctor {worst}"


def shared_guard(settings: GuardSettings, endpoints: tuple[str, ...]) -> SandboxGuard:
    """Return the guard that all tools of this process with these settings and sandboxes share."""
    scope, key = runtime.scope(), (SandboxGuard, settings, endpoints)

    def make() -> SandboxGuard:
        return SandboxGuard(settings, endpoints)

    return scope.get(key, lambda: runtime.shared(key, make) if tells_real_time(scope.loop) else make())
