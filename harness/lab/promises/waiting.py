"""Promises about single calls that wait: for programs, for permits, and for a sandbox."""

from __future__ import annotations

import itertools
from typing import ClassVar

from ...core.journal import Event
from ...core.verdict import Verdict
from ..single_calls.calls import FAIR, CallFacts, RunFacts, SentRequest
from ..single_calls.suite import SuiteFacts, played_ends
from .base import Promise
from .findings import Findings, Wrong, unless, wrong, wrong_run
from .single_call_requests import intervals, stretches

_IDLE = 0.05
"""Seconds for which a permit may lie idle, beside the tolerance of the world. Chosen."""
_SHARE = 1 / 3
"""The share of single calls that an outage of one of two sandboxes fails at most if the client
avoids it. Chosen: a client that picks a sandbox at random loses half of them."""
_OUTAGE = 3.0
"""Seconds after which calls must avoid a sandbox that is down. Chosen."""


class ProgramsWaitedFor(Promise):
    """The client waits for the programs of single calls that end within their time limit."""

    sentences: ClassVar = {
        "unsent": "{call}: no request was sent, though the sandbox was there (expected: {end})"
        "{raised}",
        "unread": "{call}: its answer came in pieces, and was not read to its end (expected: "
        "{end})",
        "sooner": "{call}: attempt {attempt} was given up after {after:.2f} s, though its program "
        "would have answered after {needed:.2f} s and the first attempt of another call was waited "
        "for {first:.2f} s",
        "given_up": "{call}: given up after {after:.2f} s, though its program would have answered "
        "after {needed:.2f} s",
    }
    identity = ("end",)
    unseen = "no program ended within its time limit; judge-programs plays some"

    def find(self, facts: SuiteFacts) -> Findings:
        patience = _first_patience(facts)
        for call in facts:
            if call.planned.end == "either" and len(call.requests) > 1:
                yield _given_up_sooner(call, patience)
        for call in played_ends(facts):
            free = call.planned.end in ("either", "bad_arguments")
            if free or call.failed or call.ask.tests:
                continue
            if call.answered is not None:
                yield None
            elif (found := _given_up(call)) is not None:
                yield found


def _first_patience(facts: SuiteFacts) -> float:
    """Return how long the first attempt of a call is waited for that gets no answer; 0 if none is
    known."""
    longest = 0.0
    for call in facts:
        if not call.requests or "hang" not in call.requests[0].faults or call.ended_at is None:
            continue
        over = call.requests[1].at if len(call.requests) > 1 else call.ended_at
        longest = max(longest, over - call.requests[0].at)
    return longest


def _given_up_sooner(call: CallFacts, patience: float) -> Wrong | None:
    """Return that a later attempt was not waited for, although less time had passed since the call
    than a first attempt gets."""
    if call.answered is not None or call.cancelled or call.starved or call.ended_at is None:
        return None
    clear = [number for number, request in enumerate(call.requests) if not request.faults]
    if not clear or call.requests[clear[0]].status not in (0, 200):
        return None
    number = clear[0]
    request = call.requests[number]
    over = call.ended_at
    if len(call.requests) > number + 1:
        over = call.requests[number + 1].at
    after = over - request.at  # with the pause behind it: no attempt was waited for longer
    if after + call.run.tolerance >= call.due or over - call.asked_at + FAIR > patience:
        return None
    about = {"after": after, "needed": call.due, "first": patience}
    return wrong("sooner", call, end=call.end, attempt=number + 1, **about)


def _given_up(call: CallFacts) -> Wrong | None:
    """Return how a program was not waited for; None if a fault explains it."""
    if not call.requests:
        raised = ""
        if call.returned is not None and call.returned.raised:
            raised = f"; it raised {call.returned.raised:.160}"
        return wrong("unsent", call, end=call.end, raised=raised)
    after = (call.ended_at or 0.0) - call.requests[-1].at
    if call.requests[-1].faults == ("drip",) and after < call.due + FAIR:
        return wrong("unread", call, end=call.end)
    if any(request.faults or request.complaint for request in call.requests):
        return None
    return wrong("given_up", call, end=call.end, after=after, needed=call.due)


class LimitUsed(Promise):
    """While single calls wait, every permit is in use; a call that backs off holds no permit."""

    takes = frozenset({"rate_limit"})
    sentences: ClassVar = {
        "idle": "{call} waited {waited:.2f} s although only {flying} of {limit} requests were in "
        "flight",
    }
    unseen = "no call waited for a permit; judge-limit and judge-backing-off let some wait"

    def find(self, facts: SuiteFacts) -> Findings:
        for run in facts.runs:
            limit = run.settings.rate_limit
            if limit is not None and not run.divided and len(run.settings.urls) == 1:
                yield from _idle_permits(run, facts.of(run), limit)


def _idle_permits(run: RunFacts, calls: list[CallFacts], limit: int) -> Findings:
    moments = [(call.asked_at, call.asked_at) for call in calls]
    steps = [
        step
        for step in stretches([*intervals(calls), *moments])
        if not _left_alone(step[0], run.requests, run.tolerance)
    ]
    for call in calls:
        if not call.requests or call.planned.end == "not_run" or call.cancelled:
            continue
        asked = call.asked_at
        first = call.requests[0].at
        inside = [step for step in steps if step[0] >= asked and step[1] <= first]
        idle = [step for step in inside if step[2] < limit and step[1] - step[0] > run.tolerance]
        waited = sum(end - start for start, end, _ in idle)
        if waited > _IDLE * run.settings.scale:
            yield wrong("idle", call, waited=waited, limit=limit, flying=idle[0][2])
        elif first - asked > _IDLE:
            yield None


def _left_alone(at: float, requests: list[SentRequest], tolerance: float) -> bool:
    """Was a failure the last thing that happened: has no call been sent since, so that the sandbox
    gets a rest?"""
    failed = [request for request in requests if request.faults or request.status != 200]
    ends = [request.ended for request in failed if request.ended is not None]
    ends = [ended for ended in ends if ended <= at]
    if not ends:
        return False
    return not any(max(ends) + tolerance < request.at <= at for request in requests)


class SentInOrder(Promise):
    """Single calls that wait for a permit are sent in the order in which they were made."""

    takes = frozenset({"rate_limit", "concurrent"})
    sentences: ClassVar = {"overtaken": "{call} was asked for before {other}, but sent after it"}
    unseen = "no calls waited together; judge-limit lets some wait"

    def find(self, facts: SuiteFacts) -> Findings:
        for run in facts.runs:
            calls = [call for call in facts.of(run) if call.requests]
            if not _is_plain_queue(calls):
                continue
            for call, other in itertools.combinations(calls, 2):
                if other.asked_at - call.asked_at <= run.tolerance:
                    continue
                in_order = call.requests[0].at <= other.requests[0].at + run.tolerance
                yield unless(in_order, "overtaken", call, other=other.name)


def _is_plain_queue(calls: list[CallFacts]) -> bool:
    """Do calls only wait for each other: are they made together, at different times, and do all
    succeed?"""
    if len({call.planned.part.at for call in calls}) < len(calls):
        return False
    well = all(call.planned.end == "ok" and call.planned.part.together for call in calls)
    run = calls[0].run if calls else None
    return well and run is not None and not run.has_events and run.settings.rate_limit is not None


class SandboxesUsed(Promise):
    """All sandboxes are used, if only while another is down, which soon fails no more single calls
    and is used again later."""

    takes = frozenset({"urls", "concurrent"})
    sentences: ClassVar = {
        "unused": "{sandbox} of {count} never received a request",
        "outage": "{call}: failed while one of the sandboxes was down, {after:.0f} s after it went",
        "gives_up": "{failed} of {calls:call} failed while one of two sandboxes was down: the "
        "client never tries again, so nobody knows whether it avoids that one",
        "not_recovered": "{sandbox} received no request after it had come back, for {seconds:.0f} "
        "s",
    }
    unseen = "no run had several sandboxes; judge-sandboxes has two"

    def find(self, facts: SuiteFacts) -> Findings:
        retries = any(len(call.requests) > 1 for call in facts if len(call.run.settings.urls) == 1)
        for run in facts.runs:
            if len(run.settings.urls) > 1:
                yield from _use_of_sandboxes(run, facts.of(run), retries=retries)

    def doubt(self, facts: SuiteFacts) -> Verdict | None:
        for run in facts.runs:
            met = _outages_met(run, facts.of(run)) if len(run.settings.urls) > 1 else []
            failed = sum(each is not None for each in met)
            if failed > _SHARE * len(met):
                return self.unknown("gives_up", failed=failed, calls=len(met))
        return None


def _outages_met(run: RunFacts, calls: list[CallFacts]) -> list[Wrong | None]:
    """Return for each call that was made a while after a sandbox had crashed whether it failed."""
    crash = _first(run.crashes, "crash")
    restart = _first(run.crashes, "restart")
    if crash is None or restart is None:
        return []
    return list(_failed_by_outage(run, calls, crash, restart))


def _use_of_sandboxes(run: RunFacts, calls: list[CallFacts], *, retries: bool) -> Findings:
    requests: list[SentRequest] = []
    for call in calls:
        requests += call.requests
    yield from _unused_sandboxes(run, requests)
    crash = _first(run.crashes, "crash")
    restart = _first(run.crashes, "restart")
    if crash is None or restart is None:
        return
    yield from _recovery(run, requests, crash, restart)
    if retries:  # else it makes one attempt only, which an outage may fail
        yield from _failed_by_outage(run, calls, crash, restart)


def _first(events: list[Event], name: str) -> Event | None:
    return next((event for event in events if event["event"] == name), None)


def _unused_sandboxes(run: RunFacts, requests: list[SentRequest]) -> Findings:
    used = {request.sandbox for request in requests}
    count = len(run.settings.urls)
    for number in range(1, count + 1):
        name = f"sandbox-{number}"
        yield None if name in used else wrong_run("unused", [], sandbox=name, count=count)


def _recovery(run: RunFacts, requests: list[SentRequest], crash: Event, restart: Event) -> Findings:
    """Find out whether a sandbox that was used before its crash is used after its restart."""
    times = [request.at for request in requests if request.sandbox == crash["sandbox"]]
    if not any(at < crash["at"] for at in times):
        return
    if any(at >= restart["at"] for at in times):
        yield None
        return
    about = {"sandbox": crash["sandbox"], "seconds": run.ended - restart["at"]}
    yield wrong_run("not_recovered", [crash, restart], **about)


def _failed_by_outage(
    run: RunFacts, calls: list[CallFacts], crash: Event, restart: Event
) -> Findings:
    """Judge the calls that were made a while after a sandbox had crashed."""
    soon = _OUTAGE * run.settings.scale + run.tolerance
    for call in calls:
        after = call.asked_at - crash["at"]
        if soon < after < restart["at"] - crash["at"]:
            yield unless(call.answered, "outage", call, after=after)
