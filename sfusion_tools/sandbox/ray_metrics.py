"""Metrics of the tool in Ray's own exporter, sent every two seconds while calls are made.

A call only adds to counters of this process; a timer thread passes them on, because recording a
value in Ray takes some 5 µs. Ray is used if it runs in this process, and never imported otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

from sfusion_tools._loops import DeferringLock, tells_real_time
from sfusion_tools.limiter.ray_limiter import ray_is_running, ray_session
from sfusion_tools.outcome import Outcome
from sfusion_tools.runtime import LoopResource, runtime
from sfusion_tools.sandbox.prometheus_metrics import (
    SECONDS,
    PrometheusMetrics,
    is_served,
    prometheus_metrics,
)
from sfusion_tools.sandbox.result import CallResult

logger = logging.getLogger(__name__)

SWITCH = "SFUSION_RAY_METRICS"
INTERVAL = 2.0
"""Seconds between two times at which counts are passed on to Ray. Chosen: Ray itself reports them
every 10 s."""

MOST_TIMES = 100_000
"""How many calls are remembered until they are passed on. Chosen: more than a process makes in that
time."""


class _Instruments:
    """The metrics of one Ray session.

    Ray puts ``ray_`` before their names, and ``_total`` after those of counters.
    """

    def __init__(self) -> None:
        from ray.util import metrics

        self.calls = metrics.Counter(
            "sfusion_calls", description="Tool calls that ended.", tag_keys=("tool", "outcome")
        )
        self.attempts = metrics.Counter(
            "sfusion_attempts",
            description="HTTP requests that ended, by status, or by outcome without one.",
            tag_keys=("tool", "endpoint", "status"),
        )
        self.waits = metrics.Histogram(
            "sfusion_permit_wait_seconds",
            description="Seconds that a call waited for permits.",
            tag_keys=("tool",),
            boundaries=[*SECONDS],
        )
        self.seconds = metrics.Histogram(
            "sfusion_call_seconds",
            description="Seconds from the beginning of a call to its end.",
            tag_keys=("tool",),
            boundaries=[*SECONDS],
        )
        self.in_flight = metrics.Gauge(
            "sfusion_calls_in_flight",
            description="Tool calls in flight in this process.",
            tag_keys=("tool",),
        )


@dataclass(slots=True)
class _Ended:
    """The calls that have ended since the last ones were passed on."""

    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    attempts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    times: list[tuple[str, float, float]] = field(default_factory=list)


class RayMetrics(LoopResource):
    """What the tools of this process have done since it was last passed on to Ray."""

    def __init__(self) -> None:
        self.on = os.environ.get(SWITCH, "1") != "0"
        self._lock = DeferringLock()
        self._flushing = threading.Lock()
        self._ended = _Ended()
        self._in_flight: Counter[str] = Counter()
        self._timer: threading.Timer | None = None
        self._session = ""
        self._instruments: _Instruments | None = None

    def begin(self, tool: str) -> None:
        with self._lock:
            self._in_flight[tool] += 1
            if self._timer is None:
                self._start_timer()

    def end(self, tool: str, result: CallResult, *, raised: bool) -> None:
        """Count the attempts of a call, and the call itself unless it raised an error."""
        self._lock.defer(partial(self._count, tool, result, raised))

    def _count(self, tool: str, result: CallResult, raised: bool) -> None:
        ended = self._ended
        self._in_flight[tool] -= 1
        for attempt in result.attempts:
            ended.attempts[tool, attempt.endpoint, str(attempt.status or attempt.kind)] += 1
        if raised:
            return
        ended.calls[tool, result.outcome.value] += 1
        if result.outcome is not Outcome.BAD_ARGUMENTS and len(ended.times) < MOST_TIMES:
            ended.times.append((tool, result.waited, result.seconds))

    def _start_timer(self) -> None:
        self._timer = threading.Timer(INTERVAL, self._tick)
        self._timer.daemon = True
        self._timer.start()

    def _tick(self) -> None:
        self.flush()
        with self._lock:
            if any(self._in_flight.values()) or self._ended != _Ended():
                self._start_timer()
            else:
                self._timer = None

    def flush(self) -> None:
        """Pass everything on to Ray; without Ray it is dropped."""
        with self._flushing:
            with self._lock:
                ended = self._ended
                self._ended = _Ended()
                in_flight = dict(self._in_flight)
            try:
                session = ray_session()
                if session and session != self._session:
                    self._session = session
                    self._instruments = None
                    self._instruments = _Instruments()
                if session and self._instruments is not None:
                    self._record(self._instruments, ended, in_flight)
            except Exception as error:
                # A tool must not fail, nor fill the log, because of its metrics.
                self._instruments = None
                logger.warning(
                    "no metrics for Ray until it is started again: %s: %s",
                    type(error).__name__,
                    error,
                )

    def _record(self, to: _Instruments, ended: _Ended, in_flight: dict[str, int]) -> None:
        for (tool, outcome), count in ended.calls.items():
            to.calls.inc(count, {"tool": tool, "outcome": outcome})
        for (tool, endpoint, status), count in ended.attempts.items():
            to.attempts.inc(count, {"tool": tool, "endpoint": endpoint, "status": status})
        for tool, waited, seconds in ended.times:
            to.waits.observe(waited, {"tool": tool})
            to.seconds.observe(seconds, {"tool": tool})
        for tool, count in in_flight.items():
            to.in_flight.set(count, {"tool": tool})

    async def aclose(self) -> None:
        """At the end of a loop: pass on what there is, for this process may end too."""
        self.flush()


@contextmanager
def _counted(
    metrics: RayMetrics | PrometheusMetrics, tool: str, result: CallResult
) -> Iterator[None]:
    """Count one call; by the end its result is filled in."""
    metrics.begin(tool)
    raised = True
    try:
        yield
        raised = False
    except asyncio.CancelledError:
        raised = False
        raise
    finally:
        metrics.end(tool, result, raised=raised)


_UNCOUNTED: AbstractContextManager[None] = nullcontext()


def counted_call(tool: str, result: CallResult, *, on: bool) -> AbstractContextManager[None]:
    """Return the context manager that counts one call, if metrics are on and Ray runs or the
    process serves Prometheus."""
    in_ray = on and ray_is_running()
    if not on or not (in_ray or is_served()):
        return _UNCOUNTED
    scope = runtime.scope()
    if not tells_real_time(scope.loop):
        return _UNCOUNTED
    if not in_ray:
        return _counted(prometheus_metrics(), tool, result)
    metrics = scope.get(RayMetrics, lambda: runtime.shared(RayMetrics, RayMetrics))
    return _counted(metrics, tool, result) if metrics.on else _UNCOUNTED
