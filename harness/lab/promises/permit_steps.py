"""Attempts and permits as steps in time: seen by the clients, or by the sandbox."""

from __future__ import annotations

from math import inf
from typing import Any

from ...core.journal import Event
from ...core.run_events import RunEvents, attempt_of

Step = tuple[str, Any, Event]
"""What happened (begin, end, granted, returned, limit), to which attempt or permit, and the event
that shows it."""


def client_steps(run: RunEvents) -> list[Step]:
    """Return the attempts as the clients report them, and the permits as the limiter does."""
    steps = _ClientSteps()
    for event in run.journal.events:
        if event["source"] == "limiter":
            steps.add_of_limiter(event)
        else:
            steps.add(event)
    return steps.found


class _ClientSteps:
    """Reads the events of a run one by one; ``found`` has the steps so far."""

    def __init__(self) -> None:
        self.found: list[Step] = []
        self._holder: dict[str, Any] = {}
        """The attempt that each permit was granted to."""
        self._in_flight: dict[str, dict[Any, None]] = {}
        """The attempts of each worker, in order."""
        self._granted_at: dict[Any, float] = {}
        self._resumes_at: dict[str, float] = {}
        self._stalled: set[str] = set()
        """Workers that were paused or cut off at some time."""
        self._learned: set[str] = set()
        """Permits that a new limiter learned of from a worker that had been stalled."""
        self._expired: set[Any] = set()
        """Attempts whose permit is gone."""

    def add(self, event: Event) -> None:
        """Read an event of a client or of the world."""
        attempt = (event.get("call"), event.get("attempt"))
        match event["event"]:
            case "cut_off":
                self._stalled.add(event["worker"])
            case "worker_paused":
                self._stalled.add(event["worker"])
                self._resumes_at[event["worker"]] = event["at"] + event["seconds"]
            case "permit_granted" if event["source"] == "client":
                self._holder[event["permit"]] = attempt
                self._granted_at[attempt] = event["at"]
            case "attempt_started" if not self._was_stopped_before_it(attempt, event):
                self.found.append(("begin", attempt, event))
                self._in_flight.setdefault(event["worker"], {})[attempt] = None
            case "attempt_ended":
                self.found.append(("end", attempt, event))
                self._in_flight.get(event["worker"], {}).pop(attempt, None)
            case "worker_died":
                for dead in self._in_flight.get(event["worker"], {}):
                    self.found.append(("end", dead, event))

    def add_of_limiter(self, event: Event) -> None:
        """Read an event of the limiter."""
        match event["event"]:
            case "granted" | "learned":
                self.found.append(("granted", event["permit"], event))
                if event["event"] == "learned" and event["worker"] in self._stalled:
                    self._learned.add(event["permit"])
            case "released" | "expired":
                self.found.append(("returned", event["permit"], event))
                if self._is_taken_away(event):
                    holder = self._holder[event["permit"]]
                    self._expired.add(holder)
                    self.found.append(("end", holder, event))
            case "resized":
                self.found.append(("limit", None, event))

    def _was_stopped_before_it(self, attempt: Any, event: Event) -> bool:
        """Was the process stopped between the grant and the request of an expired attempt?

        The request is then one that was in flight already, as it were.
        """
        if attempt not in self._expired:
            return False
        resumed = self._resumes_at.get(event["worker"], 0.0)
        now: float = event["at"]
        return self._granted_at[attempt] < resumed <= now

    def _is_taken_away(self, event: Event) -> bool:
        """Does the holder of this permit not know that it is gone?

        A client that was stalled for a lease gives a new limiter back what the old one may have
        given away.
        """
        if event["permit"] not in self._holder:
            return False
        return event["event"] == "expired" or event["permit"] in self._learned


def server_steps(run: RunEvents, lease: float = inf) -> list[Step]:
    """Return the attempts that the sandbox saw, but for those that it cannot know to be over."""
    steps = _ServerSteps(lease, left=_attempts_left(run))
    for event in run.journal.events:
        match event["source"]:
            case "world":
                steps.add_of_world(event)
            case "limiter":
                steps.add_of_limiter(event)
            case "server":
                steps.add_of_server(event)
    return steps.found


def _attempts_left(run: RunEvents) -> set[Any]:
    """Return the attempts whose client has left, or may have.

    A program whose client has left keeps running at the sandbox, but is no longer counted as an
    attempt. For a program that outlived the scenario, only a client that reports its attempts
    shows whether it had left. Nor does one count that never answers, once its call was asked
    again: the client may have left long before.
    """
    arrivals = [event for event in run.server if event["event"] == "arrived"]
    endings = [event for event in run.server if event["event"] in ("answered", "unanswered")]
    left = {attempt_of(event) for event in endings if event.get("client_gone")}
    ended = {attempt_of(event) for event in endings}
    last_attempts = {event["call"]: attempt_of(event) for event in arrivals}
    for event in arrivals:
        attempt = attempt_of(event)
        is_last = attempt == last_attempts[event["call"]]
        if attempt not in ended and (run.has_client or not is_last):
            left.add(attempt)
    return left


class _ServerSteps:
    """Reads the events of a run one by one; ``found`` has the steps so far."""

    def __init__(self, lease: float, left: set[Any]) -> None:
        self.found: list[Step] = []
        self._lease = lease
        self._left = left
        self._under_way: dict[str, list[Any]] = {}
        """The attempts of each call that the sandbox works on."""
        self._calls: dict[str, list[str]] = {}
        """The calls of each worker."""
        self._stopped: dict[str, float] = {}
        self._over: set[str] = set()
        """Calls that have ended."""

    def add_of_world(self, event: Event) -> None:
        match event["event"]:
            case "called":
                self._calls.setdefault(event["worker"], []).append(event["call"])
            case "returned" | "cancelled" | "lost":
                self._end(event["call"], event)
            case "worker_paused":
                self._stopped.setdefault(event["worker"], event["at"])
            case "worker_resumed":
                stopped_at = self._stopped.pop(event["worker"], event["at"])
                if event["at"] - stopped_at >= self._lease:
                    # It has lost its permits and cannot take requests back.
                    for call in self._calls.pop(event["worker"], ()):
                        self._end(call, event)

    def add_of_limiter(self, event: Event) -> None:
        match event["event"]:
            case "granted" | "learned":
                self.found.append(("granted", event["permit"], event))
            case "released" | "expired":
                self.found.append(("returned", event["permit"], event))
            case "resized":
                self.found.append(("limit", None, event))

    def add_of_server(self, event: Event) -> None:
        attempt = attempt_of(event)
        match event["event"]:
            case "crash":
                self._crash(event)
            case "arrived" if attempt not in self._left and event["call"] not in self._over:
                # One that arrives after the end of its call was on its way then.
                self._under_way.setdefault(event["call"], []).append(attempt)
                self.found.append(("begin", attempt, event))
            case "answered" | "unanswered" if attempt not in self._left:
                self.found.append(("end", attempt, event))

    def _crash(self, event: Event) -> None:
        """End all requests of a sandbox at once, whenever it gets to reporting them."""
        for attempts in self._under_way.values():
            for attempt in attempts:
                if attempt[0] == event.get("sandbox"):
                    self.found.append(("end", attempt, event))

    def _end(self, call: str, event: Event) -> None:
        """End a call. Its program may outlive it, and the run: the tool waits for it no longer."""
        for attempt in self._under_way.pop(call, ()):
            self.found.append(("end", attempt, event))
        self._over.add(call)
