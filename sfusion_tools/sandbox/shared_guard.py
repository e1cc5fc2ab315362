"""The guard of the sandboxes that a client uses, shared by all clients of a process: a lock, the log and the error."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from sfusion_tools._loops import DeferringLock, tells_real_time
from sfusion_tools.errors import GuardTripped
from sfusion_tools.outcome import Outcome
from sfusion_tools.runtime import LoopResource, runtime
from sfusion_tools.sandbox.endpoints import base_urls, redact
from sfusion_tools.sandbox.guard import GuardCore, GuardedCall, GuardSettings, Trip, is_failure
from sfusion_tools.sandbox.result import CallResult

logger = logging.getLogger(__name__)

_LIMITER = "the limiter"


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
            call, trip = self._core.begin(now), self._core.trip
        if call is None:
            raise GuardTripped(f"{self._text(trip)}. This call was not made; calls are tried again from time to time")
        return call

    def end(self, call: GuardedCall, now: float, result: CallResult | None) -> None:
        """Count how a call ended, None if that says nothing; raise GuardTripped if it failed with the others."""
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
            next_calls = "Calls now raise GuardTripped" if stops else "Training goes on, and must mask such calls"
            logger.error("guard: %s. %s", self._text(trip), next_calls)
        if trip is not None and stops and is_failure(result.outcome):
            raise GuardTripped(self._text(trip))

    def _text(self, trip: Trip | None) -> str:
        failed_at = trip.failed_at if trip is not None else {}
        ranked = sorted({*self.endpoints, *failed_at}, key=lambda place: (-failed_at.get(place, 0), place))
        places = ", ".join(f"{failed_at.get(place, 0)} at {place}" for place in ranked)
        # Of a masked address nobody can be asked.
        command = "limiter" if ranked[0] == _LIMITER else f"doctor {'URL' if '***' in ranked[0] else ranked[0]}"
        return f"{trip}. Failures: {places}. To find out why, run: sfusion {command}"


@dataclass(frozen=True, slots=True)
class _GuardKey:
    """What the clients of one guard have in common; never shown, because it may contain passwords."""

    settings: GuardSettings
    urls: tuple[str, ...] = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(repr=False)


def shared_guard(
    settings: GuardSettings, urls: str | Sequence[str], headers: Mapping[str, str] | None = None
) -> Callable[[], SandboxGuard]:
    """Return what gives the running loop's guard, which all clients of this process with the same of these share."""
    names = sorted((name.lower(), value) for name, value in (headers or {}).items())
    key = _GuardKey(settings, tuple(sorted(base_urls(urls))), tuple(names))
    labels = tuple(dict.fromkeys(map(redact, key.urls)))

    def make() -> SandboxGuard:
        return SandboxGuard(settings, labels)

    def guard() -> SandboxGuard:
        scope = runtime.scope()
        return scope.get(key, lambda: runtime.shared(key, make) if tells_real_time(scope.loop) else make())

    return guard
