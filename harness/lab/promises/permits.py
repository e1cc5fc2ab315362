"""Promises about the limiter: the limit, the order of grants, and that no permit is lost."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar, NamedTuple

from pydantic import Field

from sfusion_tools.record import ENDINGS

from ....fakes.faults import Seconds
from ...core.events import AnyEvent, LimiterEvent
from ...core.journal import Event
from ...core.run_events import RunEvents
from ...core.verdict import Verdict
from ..single_calls.suite import SuiteFacts
from .base import Promise
from .findings import Findings
from .permit_steps import client_steps, server_steps
from .single_call_requests import find_crowds


class InFlightWithinLimit(Promise):
    """The whole cluster never has more attempts in flight than the limiter allows.

    Counted at the client, from the start of an attempt to its end, the death of its worker or the
    expiry of its lease; for tools that do not report attempts, counted at the sandbox.
    """

    needs = "ending"
    sentences: ClassVar = {
        "no_limit": (
            "the limit is not known: the tool does not state a rate_limit, and the "
            "promise no `limit`"
        ),
        "nothing": "no attempt was observed",
        "never_reached": (
            "at most {calls:call} were under way at once, the limit is "
            "{limit}: nothing could exceed it"
        ),
        "unseen": "{why}, so the sandbox sees attempts that no longer count",
        "exceeded": "at {at:g} s {crowd} attempts were in flight; the limit is {limit}",
        "exceeded_unreported": "at {at:g} s {crowd} attempts were in flight at the sandbox "
        "(the client reports a peak "
        "of {reported}); the limit is {limit}",
        "held": "at most {peak} in flight, the limit is {limit}",
        "held_resized": "at most {peak} in flight, the limit was {limits:, then }",
        "over": "{flying:request} in flight at {at:.2f} s of {run}, with a limit of {limit}",
    }
    takes = frozenset({"rate_limit"})
    of_single_calls = "Requests in flight never exceed the limit."
    unseen = "no request came"

    limit: int | None = Field(
        None, ge=1, description="the limit; default: the rate_limit of the tools"
    )

    def find(self, facts: SuiteFacts) -> Findings:
        return find_crowds(facts, self.limit)

    def check(self, run: RunEvents) -> Verdict:
        limit = self.limit or run.began.get("limit")
        if limit is None:
            return self.not_shown(run, "no_limit")
        steps = client_steps(run) if run.has_client else server_steps(run)
        found = count_in_flight(steps, limit)
        if not found.peak:
            return self.not_shown(run, "nothing")
        kind = "exceeded"
        reported = found.peak
        if not found.broken and run.has_client and _is_calm(run):
            # Whatever the client reports, the sandbox must not see more attempts than the limit.
            kind = "exceeded_unreported"
            seen = count_in_flight(server_steps(run), limit)
            if seen.broken or seen.peak > found.peak:
                found = seen
        if found.broken:
            why = _unseen(run)
            if why is not None:
                return self.not_shown(run, "unseen", why=why)
            return self.broken(
                kind,
                found.first,
                found.broken,
                at=found.first[-1]["at"],
                crowd=found.crowd,
                reported=reported,
                limit=found.limit,
            )
        limits = list(dict.fromkeys(found.limits))
        calls = _most_under_way(run)
        if calls < min(limits):
            return self.unknown("never_reached", calls=calls, limit=min(limits))
        return self.held(
            "held" if len(limits) == 1 else "held_resized",
            peak=found.peak,
            limit=limit,
            limits=limits,
        )


def _unseen(run: RunEvents) -> str | None:
    """Say why nobody can tell how many attempts count; None if it can be told."""
    if run.foreign and run.began.get("queues"):
        return "requests whose clients have left stay in the queue of a sandbox"
    died: Event | None = None
    for event in [*run.of_world("limiter_died", "limiter_started"), *run.of_world("ended")]:
        if died is not None and event["at"] - died["at"] > 0.5 * run.began.get("lease", inf):
            return "leases expired while there was no limiter"
        died = event if event["event"] == "limiter_died" else None
    return None


def _most_under_way(run: RunEvents) -> int:
    """Return how many calls were under way at once, and so how many attempts there could be."""
    now = 0
    most = 0
    for event in run.world:
        if event["event"] == "called":
            now += 1
        elif event["event"] in ENDINGS:
            now -= 1
        most = max(most, now)
    return most


@dataclass
class FlightCount:
    """How many attempts were in flight."""

    peak: int = 0
    broken: int = 0
    """How often the limit in force was exceeded."""
    first: list[Event] = field(default_factory=list)
    """The attempts that exceeded it first."""
    crowd: int = 0
    """How many there were then."""
    limit: int = 0
    """The limit in force then."""
    limits: list[int] = field(default_factory=list)


def count_in_flight(steps: list[tuple[str, Any, Event]], limit: int) -> FlightCount:
    """Count attempts in flight against the limit in force.

    Steps in order: `begin` and `end` of an attempt, `granted` and `returned` of a permit, `limit`
    for a new limit.
    """
    found = FlightCount(limits=[limit])
    flying: dict[Any, Event] = {}
    out: set[str] = set()
    allowed = 0
    for kind, key, event in steps:
        match kind:
            case "limit":
                # Permits that are out may be used, also those still on their way; their number may
                # only fall until it reaches the new limit.
                limit = event["rate_limit"]
                allowed = max(len(flying), len(out))
                found.limits.append(limit)
            case "granted":
                out.add(key)
            case "returned":
                out.discard(key)
                allowed = min(allowed, max(len(flying), len(out)))
            case "begin":
                flying[key] = event
                found.peak = max(found.peak, len(flying))
                if len(flying) > max(limit, allowed):
                    found.broken += 1
                    if found.broken == 1:
                        found.first = [*list(flying.values())[-5:], event]
                        found.crowd = len(flying)
                        found.limit = limit
            case _:
                flying.pop(key, None)
                allowed = min(allowed, max(len(flying), len(out)))
    return found


def _is_calm(run: RunEvents) -> bool:
    """Was there no death, pause or resize?

    After one, the sandbox may see attempts that no longer count.
    """
    if run.of_world("worker_died", "worker_paused", "cut_off", "limiter_died", "limiter_paused"):
        return False
    return not any(event["event"] in ("expired", "resized") for event in run.limiter)


class NoPermitLeaked(Promise):
    """At the end of the run every permit has been returned: released, or expired where a worker
    died, was paused or cut off. An expired permit of a healthy worker counts as leaked."""

    needs = "ending"
    of_permits = True
    sentences: ClassVar = {
        "not_finished": "the run did not finish",
        "never_returned": "permit {permit} of {worker} was never returned",
        "some_never_returned": "a permit was never returned",
        "still_queued": "callers are still queued after the end",
        "never_granted": "permit {permit} was released but never granted",
        "expired": "permit {permit} of {worker} (alive) was not released before its lease expired",
        "held": "{granted:permit} granted, all returned",
    }

    def check(self, run: RunEvents) -> Verdict:
        if not run.limiter and not (run.ended or {}).get("limiter"):
            return self.unknown("limiter_unseen")
        if run.ended is None:
            return self.unknown("not_finished")
        out, unknown = _permits_at_the_end(run)
        state = run.ended.get("limiter") or {}
        if out or state.get("in_use"):
            if not out:
                return self.broken("some_never_returned", [run.ended])
            return self.broken("never_returned", [*out[:4], run.ended], len(out), **_named(out[0]))
        if state.get("waiting"):
            return self.broken("still_queued", [run.ended], state["waiting"])
        if unknown:
            return self.broken("never_granted", unknown, len(unknown), permit=unknown[0]["permit"])
        late = _unexcused_expiries(run)
        if late:
            return self.broken("expired", late, len(late), **_named(late[0]))
        return self.held(granted=sum(event["event"] == "granted" for event in run.limiter))


def _permits_at_the_end(run: RunEvents) -> tuple[list[Event], list[Event]]:
    """Return the grants of permits that were not returned, and returns of those never granted."""
    out: dict[str, Event] = {}
    never_granted: list[Event] = []
    for event in run.journal.events:
        if event["event"] == "limiter_died":
            out.clear()  # the clients report to the next limiter what they hold
        elif event["source"] != "limiter":
            continue
        elif event["event"] in ("granted", "learned"):
            out[event["permit"]] = event
        elif event["event"] in ("released", "expired"):
            if event["permit"] not in out:
                never_granted.append(event)
            out.pop(event["permit"], None)
    return list(out.values()), never_granted


def _named(event: AnyEvent) -> dict[str, Any]:
    return {"permit": event["permit"], "worker": event["worker"]}


def _unexcused_expiries(run: RunEvents) -> list[LimiterEvent]:
    """Return expiries of permits whose worker was alive, running and connected."""
    if run.began.get("loss") or run.began.get("slow_link") or run.of_world("limiter_died"):
        return []
    stalled = run.of_world("worker_died", "worker_paused", "cut_off")
    excused = {event["worker"] for event in stalled}
    expired = [event for event in run.limiter if event["event"] == "expired"]
    return [event for event in expired if event["worker"] not in excused]


class GrantsInOrder(Promise):
    """Permits are granted first come, first served: never while an earlier ticket is queued."""

    needs = "ending"
    of_permits = True
    sentences: ClassVar = {
        "overtaken": (
            "at {at:g} s ticket {ticket} of {worker} was served while ticket "
            "{other} of {waiter} was queued"
        ),
        "nothing": "no permit was granted",
        "held": "{judged:grant}, all in order",
    }

    def check(self, run: RunEvents) -> Verdict:
        if not run.limiter:
            return self.unknown("limiter_unseen")
        queue: dict[int, Event] = {}
        # A heap; tickets that have left the queue are dropped when they reach its top.
        tickets: list[int] = []
        wrong: list[Verdict] = []
        served = 0
        for event in run.journal.events:
            if event["event"] == "limiter_died":
                queue.clear()
            if event["source"] != "limiter":
                continue
            ticket = event.get("ticket")
            if event["event"] == "asked":
                queue[event["ticket"]] = event
                heapq.heappush(tickets, event["ticket"])
            elif event["event"] in ("cancelled", "dropped"):
                queue.pop(event["ticket"], None)
            elif event["event"] in ("granted", "handed_on") and ticket is not None:
                served += 1
                queue.pop(ticket, None)
                while tickets and tickets[0] not in queue:
                    heapq.heappop(tickets)
                if tickets and tickets[0] < ticket:
                    overtaken = queue[tickets[0]]
                    # A client reports late which of its own waiters it served, in any order within
                    # a batch.
                    if event["event"] == "granted" or overtaken["worker"] != event["worker"]:
                        wrong.append(self._overtaken(event, overtaken))
        return self.concluded(wrong, served)

    def _overtaken(self, event: Event, overtaken: Event) -> Verdict:
        return self.broken(
            "overtaken",
            [overtaken, event],
            at=event["at"],
            ticket=event["ticket"],
            worker=event["worker"],
            other=overtaken["ticket"],
            waiter=overtaken["worker"],
        )


class RequestsPaced(Promise):
    """No more requests are sent per second than `requests_per_second` and `requests_burst` of the
    tool allow. Judged by the permits of our limiter, for other tools by the requests at the
    sandbox, of which one may be early."""

    needs = "ending"
    sentences: ClassVar = {
        "too_fast": "at {at:g} s a permit was granted {early:.3g} s before {rate:g} per "
        "second allow it (burst: "
        "{burst:g})",
        "sent_too_fast": "at {at:g} s a request arrived {early:.3g} s before {rate:g} per "
        "second allow it (burst: "
        "{burst:g}, and one)",
        "no_pace": (
            "the tool has no `requests_per_second`, or its limiter died, which forgets the pace"
        ),
        "not_clear": "requests were held up on their way, so their pace is not seen",
        "held": "{judged:request}, none too early",
    }

    def check(self, run: RunEvents) -> Verdict:
        pace = run.began.get("pace")
        if pace is None or run.of_world("limiter_died"):
            return self.not_shown(run, "no_pace")
        rate, burst = pace
        if run.foreign:
            if not _shows_pace(run):
                return self.not_applicable("not_clear")
            kind = "sent_too_fast"
            sent: Sequence[AnyEvent] = [
                request for request in run.server if request["event"] == "arrived"
            ]
            most = burst + 1
        else:
            kind = "too_fast"
            sent = [grant for grant in run.limiter if grant["event"] in ("granted", "handed_on")]
            most = burst
        wrong = []
        for event, early in _too_early(sent, rate, most):
            facts = {"at": event["at"], "early": early, "rate": rate, "burst": burst}
            wrong.append(self.broken(kind, [event], **facts))
        return self.concluded(wrong, len(sent)) if sent else self.unknown("no_pace")


_ROUNDED = 1e-5
"""Seconds by which the times of a journal may differ from those of the limiter: they are rounded
to microseconds."""


def _shows_pace(run: RunEvents) -> bool:
    """Do requests arrive at the sandbox when they were sent?"""
    if run.is_disturbed or run.journal.header.get("world") != "sim":
        return False
    return not any(event.get("phase") == "connect" for event in run.server)


def _too_early(
    sent: Sequence[AnyEvent], rate: float, most: float
) -> Iterator[tuple[AnyEvent, float]]:
    """Yield what was sent before a bucket of so many tokens allowed it, and by how many seconds."""
    tokens = most
    last = 0.0
    for event in sent:
        tokens = min(most, tokens + (event["at"] - last) * rate)
        last = event["at"]
        if tokens < 1 - _ROUNDED * rate:
            yield event, (1 - tokens) / rate
        tokens -= 1


class NoStarvation(Promise):
    """No caller waits for a permit longer than `at_most`."""

    implied: ClassVar[bool] = False
    needs = "ending"
    of_permits = True
    scalar = "at_most"
    sentences: ClassVar = {
        "waited": "{worker} waited {waited:g} s for a permit from {at:g} s, promised {bound:g} s",
        "still_waiting": "{callers:caller} still waited for a permit when the run ended, "
        "the longest for "
        "{longest:.3g} s",
        "nothing": "no permit was asked for",
        "held": "the longest wait for a permit was {longest:.3g} s",
    }

    at_most: Seconds = Field(60.0, description="maximum wait for a permit")

    def check(self, run: RunEvents) -> Verdict:
        if not run.limiter:
            return self.unknown("limiter_unseen")
        waits = _Waits()
        for event in run.journal.events:
            waits.add(event)
        end = run.journal.events[-1]
        unserved = [_Wait(since, end) for since in waits.asked.values()]
        late = [
            wait
            for wait in waits.served + unserved
            if wait.seconds - run.stood_still(wait.since["at"], wait.until["at"]) > self.at_most
        ]
        if late:
            first = late[0]
            return self.broken(
                "waited",
                [first.since, first.until],
                len(late),
                worker=first.since["worker"],
                waited=first.seconds,
                at=first.since["at"],
                bound=self.at_most,
            )
        if unserved:
            longest = max(wait.seconds for wait in unserved)
            return self.unknown("still_waiting", callers=len(unserved), longest=longest)
        longest = max((wait.seconds for wait in waits.served), default=0.0)
        return self.concluded([], len(waits.served), longest=longest)


class _Wait(NamedTuple):
    """A caller's wait for a permit."""

    since: Event
    until: Event

    @property
    def seconds(self) -> float:
        return float(self.until["at"] - self.since["at"])


class _Waits:
    """Who asked for a permit, and who got one; reads the events of a run one by one."""

    def __init__(self) -> None:
        self.asked: dict[tuple[str, int], Event] = {}
        """When each caller asked that still waits."""
        self.served: list[_Wait] = []
        self._earlier: dict[tuple[str, int], Event] = {}
        """When callers asked that the limiter has forgotten; they may ask again."""

    def add(self, event: Event) -> None:
        if event["event"] == "worker_died":
            self.asked = {key: at for key, at in self.asked.items() if key[0] != event["worker"]}
        elif event["event"] == "limiter_died":
            # Clients report to the next limiter who still waits; the others have been served by
            # their own client.
            self._earlier |= self.asked
            self.asked = {}
        elif event["source"] == "limiter":
            self._add_of_limiter(event)

    def _add_of_limiter(self, event: Event) -> None:
        key = (event["worker"], event.get("waiter", -1))
        match event["event"]:
            case "asked":
                self.asked.setdefault(key, self._earlier.pop(key, event))
            case "dropped" if key in self.asked:
                self._earlier[key] = self.asked.pop(key)  # as at the death of a limiter
            case "granted" | "handed_on" | "cancelled" if key in self.asked:
                self.served.append(_Wait(self.asked.pop(key), event))
