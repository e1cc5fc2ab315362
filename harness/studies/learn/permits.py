"""Finds the client's own limit in the waits for its permits."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from sfusion.harness.studies.learn.attempts import LoggedRequest
from sfusion.harness.studies.learn.in_flight import InFlight
from sfusion_tools.wording import counted

_NOTICED = 0.02
"""Seconds from which on a wait is one."""
_MANY = 0.05
"""The share of requests from which on waits say more about the limit than the most that were ever in flight."""
_SERIOUS = 0.2
_MATTERS = 0.1
"""Seconds for each request from which on waiting matters as much as failing."""


@dataclass(frozen=True, slots=True)
class PermitWaits:
    """How many requests the client lets through at a time, and what that cost."""

    limit: int
    waited: int
    of: int
    median: float
    share: float
    """The share of the time of all requests and their waits."""
    each: float
    """Seconds of waiting for each request, on average."""
    without: int = 0
    """Calls that waited and got none."""

    @property
    def evidence(self) -> str:
        requests = counted(self.of, "request")
        waited = (
            f"{self.waited:,} of {requests} waited for a permit, {self.median:.3g} s each, with {self.limit} in flight"
        )
        return f"{waited}; {counted(self.without, 'call')} got none" if self.without else waited

    @property
    def says(self) -> str:
        return (
            f"limited by the client's own rate_limit {self.limit}: {self.share:.0%} of the time is waits for a permit"
        )

    @property
    def is_serious(self) -> bool:
        return self.share >= _SERIOUS

    @property
    def weight(self) -> float:
        return self.share * min(1.0, self.each / _MATTERS)


def find_permit_waits(requests: Sequence[LoggedRequest], in_vain: Sequence[float] = ()) -> PermitWaits | None:
    """None if nothing waited; calls that got no permit waited ``in_vain``."""
    waits = [one.record.waited for one in requests if one.record.waited > _NOTICED]
    if not waits and not in_vain:
        return None
    busy = InFlight((one.began, one.ended) for one in requests)
    waiting = InFlight((one.began - one.record.waited, one.began) for one in requests if one.record.waited > _NOTICED)
    # A client may notice an end after the next beginning, so for a moment there seem to be more than the limit.
    limit = busy.lasting_peak_while(waiting) if len(waits) >= _MANY * len(requests) else busy.peak
    total, spent = sum(waits) + sum(in_vain), sum(one.seconds for one in requests)
    return PermitWaits(
        max(limit, 1),
        len(waits),
        len(requests),
        statistics.median(waits or in_vain),
        total / (total + spent),
        total / max(len(requests), 1),
        len(in_vain),
    )
