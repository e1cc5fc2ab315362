"""Metrics of the tool in the registry of prometheus_client, for processes without Ray.

They are there if the process has imported prometheus_client, which serves them; it is never
imported otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache, partial
from typing import TYPE_CHECKING

from sfusion_tools._loops import DeferringLock
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox.result import CallResult

if TYPE_CHECKING:
    from prometheus_client import Metric

SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""The boundaries of the histograms. Chosen: from a trivial program to the longest wait for a
permit."""


class PrometheusMetrics:
    """What the tools of this process have done; the library adds ``_total`` to counters."""

    def __init__(self) -> None:
        from prometheus_client import REGISTRY, Counter, Gauge, Histogram

        # The garbage collector may end a call anywhere, also within the locks of the library.
        self._lock = DeferringLock()
        # Registered first, so that what waits is counted before the values are read.
        REGISTRY.register(self)
        self.calls = Counter("sfusion_calls", "Tool calls that ended.", ["tool", "outcome"])
        self.attempts = Counter(
            "sfusion_attempts",
            "HTTP requests that ended, by status, or by outcome without one.",
            ["tool", "endpoint", "status"],
        )
        self.waits = Histogram(
            "sfusion_permit_wait_seconds",
            "Seconds that a call waited for permits.",
            ["tool"],
            buckets=SECONDS,
        )
        self.seconds = Histogram(
            "sfusion_call_seconds",
            "Seconds from the beginning of a call to its end.",
            ["tool"],
            buckets=SECONDS,
        )
        self.in_flight = Gauge(
            "sfusion_calls_in_flight", "Tool calls in flight in this process.", ["tool"]
        )

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        """Count the calls that have ended; their metrics are collected after this."""
        with self._lock:
            return ()

    def begin(self, tool: str) -> None:
        with self._lock:
            self.in_flight.labels(tool).inc()

    def end(self, tool: str, result: CallResult, *, raised: bool) -> None:
        """Count the attempts of a call, and the call itself unless it raised an error."""
        self._lock.defer(partial(self._count, tool, result, raised))

    def _count(self, tool: str, result: CallResult, raised: bool) -> None:
        self.in_flight.labels(tool).dec()
        for attempt in result.attempts:
            status = str(attempt.status or attempt.kind)
            self.attempts.labels(tool, attempt.endpoint, status).inc()
        if raised:
            return
        self.calls.labels(tool, result.outcome.value).inc()
        if result.outcome is not Outcome.BAD_ARGUMENTS:
            self.waits.labels(tool).observe(result.waited)
            self.seconds.labels(tool).observe(result.seconds)


@cache
def prometheus_metrics() -> PrometheusMetrics:
    """Return the metrics of this process: a registry takes each name once."""
    return PrometheusMetrics()


def is_served() -> bool:
    """Has the process imported prometheus_client?"""
    return "prometheus_client" in sys.modules
