"""The ledger: what arrived, what was really executed and how often, and what was in flight.

No clock, no I/O.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NotRequired, TypedDict

from ..recent_counts import RecentCounts

MOST_CALLS = 20_000
"""Calls that are remembered, and as many other requests.

Chosen: some 10 MB, so that a server can run for weeks, and far more calls than are in flight.
"""
MOST_STATUSES = 1_000
"""Statuses of one call that are remembered (chosen: loads of millions may send the same call)."""


class CallCounts(TypedDict):
    """What a ledger tells about one call; None is what a proxy cannot know."""

    arrived: int
    forwarded: NotRequired[int]
    replied: NotRequired[int]
    started: int | None
    finished: int | None
    statuses: list[int]


class LedgerCounts(TypedDict):
    """What a ledger tells about all calls; None is what a proxy cannot know."""

    arrived: int
    forwarded: NotRequired[int]
    replied: NotRequired[int]
    upstream_failed: NotRequired[int]
    started: int | None
    finished: int | None
    in_flight: int
    executing: int | None
    peak_in_flight: int
    peak_executing: int | None
    connections: int
    requests: int
    statuses: dict[str, int]
    strikes: dict[str, int]
    forgotten: int
    calls: NotRequired[dict[str, CallCounts]]


@dataclass(slots=True)
class CallRecord:
    """What the server knows about one call."""

    arrived: int = 0
    started: int = 0
    """Executions that began."""
    finished: int = 0
    """Executions that ran to their end, whether or not the answer reached the client."""
    statuses: list[int] = field(default_factory=list)
    """HTTP statuses sent, in order; 0 for an attempt that got none."""

    def as_dict(self) -> CallCounts:
        return {
            "arrived": self.arrived,
            "started": self.started,
            "finished": self.finished,
            "statuses": list(self.statuses),
        }


class Ledger:
    """Counts over all requests for work.

    A call goes by the mark in its code, or else by a digest of the body.
    """

    record: type[CallRecord] = CallRecord
    """The type that records a call."""

    def __init__(self) -> None:
        self.calls: OrderedDict[str, CallRecord] = OrderedDict()
        """The last ``MOST_CALLS`` calls."""
        self._others = RecentCounts(MOST_CALLS)
        """Attempts of requests that are not for work."""
        self.in_flight = 0
        self.executing = 0
        self.clear()

    def clear(self) -> None:
        """Reset all counts; requests being handled stay in flight."""
        self.calls.clear()
        self._forgotten = 0
        self.arrived = 0
        self.started = 0
        self.finished = 0
        self.statuses: dict[int, int] = {}
        self.answers: dict[tuple[str, str, int], int] = {}
        """How many requests of each method and route got which status, admin routes excepted."""
        self.strikes: dict[str, int] = {}
        self.connections = 0
        self.requests = 0
        self.peak_in_flight = self.in_flight
        self.peak_executing = self.executing

    def arrive(self, call: str) -> int:
        """Count a request for work; return the number of this attempt of the call."""
        record = self._record(call)
        record.arrived += 1
        self.arrived += 1
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        return record.arrived

    def arrive_other(self, call: str) -> int:
        """Return the number of this attempt of a request that is not for work.

        Nothing else is kept of these.
        """
        return self._others.add(call)

    @property
    def forgotten(self) -> int:
        """How many calls, other requests and statuses of calls are only counted by now."""
        return self._forgotten + self._others.forgotten

    def start(self, call: str) -> None:
        """Count an execution that begins."""
        self.started += 1
        self._record(call).started += 1
        self.executing += 1
        self.peak_executing = max(self.peak_executing, self.executing)

    def finish(self, call: str, *, completed: bool) -> None:
        """Count an execution that ended, by itself or because the server went down."""
        self.executing -= 1
        if completed:
            self.finished += 1
            self._record(call).finished += 1

    def leave(self, call: str, status: int) -> None:
        """Count a request that is over; status 0 when no answer was sent."""
        self.in_flight -= 1
        self.statuses[status] = self.statuses.get(status, 0) + 1
        statuses = self._record(call).statuses
        if len(statuses) >= MOST_STATUSES:
            del statuses[0]
            self._forgotten += 1
        statuses.append(status)

    def answer(self, method: str, route: str, status: int) -> None:
        """Count the end of any request, for work or not; status 0 when no answer was sent."""
        key = (method, route, status)
        self.answers[key] = self.answers.get(key, 0) + 1

    def strike(self, rule: str) -> None:
        self.strikes[rule] = self.strikes.get(rule, 0) + 1

    def executions(self, call: str) -> int:
        """How many times the code of this call began to run."""
        record = self.calls.get(call)
        return record.started if record else 0

    def snapshot(self, *, calls: bool = True) -> LedgerCounts:
        """Everything as plain data."""
        counts: LedgerCounts = {
            "arrived": self.arrived,
            "started": self.started,
            "finished": self.finished,
            "in_flight": self.in_flight,
            "executing": self.executing,
            "peak_in_flight": self.peak_in_flight,
            "peak_executing": self.peak_executing,
            "connections": self.connections,
            "requests": self.requests,
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "strikes": dict(self.strikes),
            "forgotten": self.forgotten,
        }
        if calls:
            counts["calls"] = {call: record.as_dict() for call, record in self.calls.items()}
        return counts

    def _record(self, call: str) -> CallRecord:
        # A call may be forgotten while one of its requests is still in flight.
        record = self.calls.get(call)
        if record is None:
            if len(self.calls) >= MOST_CALLS:
                self.calls.popitem(last=False)
                self._forgotten += 1
            record = self.calls[call] = self.record()
        return record
