"""Promises about single calls that wait: for programs, for permits, and for a sandbox."""

from __future__ import annotations

import itertools
from typing import ClassVar

from ..single_calls.calls import FAIR, CallFacts, RunFacts, SentRequest, SuiteFacts, played_ends
from .base import Promise
from .findings import Findings, Wrong, unless, wrong, wrong_run
from .single_sent import intervals, stretches

_MOMENT = 0.05
"""Seconds for which a permit may lie idle, beside the tolerance of the world. Chosen."""
_OUTAGE = 3.0
"""Seconds after which calls must avoid a sandbox that is down. Chosen."""


class ProgramsWaitedFor(Promise):
    """The client waits for the programs of single calls that end within their time limit."""

    sentences: ClassVar = {
        "unsent": "{call}: no request was sent, though the sandbox was there (expected: {end})"
        "{raised}",
        "unread": "{call}: its answer came in pieces, and was not read to its end (expected: "
        "{end})",
        "given_up": "{call}: given up after {after:.2f} s, though its program would have answered "
        "after {needed:.2f} s",
    }
    identity = ("end",)
    unseen = "no program ended within its time limit; judge-programs plays some"

    def find(self, facts: SuiteFacts) -> Findings:
        for call in played_ends(facts):
            free = call.planned.end in ("either", "bad_arguments")
            if free or call.failed or call.ask.tests:
                continue
            if call.answered is not None:
                yield None
            elif (found := _given_up(call)) is not None:
                yield found


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
        asked, first = call.asked_at, call.requests[0].at
        inside = [step for step in steps if step[0] >= asked and step[1] <= first]
        idle = [step for step in inside if step[2] < limit and step[1] - step[0] > run.tolerance]
        waited = sum(end - start for start, end, _ in idle)
        if waited > _MOMENT * run.settings.scale:
            yield wrong("idle", call, waited=waited, limit=limit, flying=idle[0][2])
        elif first - asked > _MOMENT:
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
        "not_recovered": "{sandbox} received no request after it had come back, for {seconds:.0f} "
        "s",
    }
    unseen = "no run had several sandboxes; judge-sandboxes has two"

    def find(self, facts: SuiteFacts) -> Findings:
        retries = any(len(call.requests) > 1 for call in facts if len(call.run.settings.urls) == 1)
        for run in facts.runs:
            if len(run.settings.urls) > 1:
                yield from _use_of_sandboxes(run, facts.of(run), retries=retries)


def _use_of_sandboxes(run: RunFacts, calls: list[CallFacts], *, retries: bool) -> Findings:
    requests = [request for call in calls for request in call.requests]
    names = [f"sandbox-{number}" for number in range(1, len(run.settings.urls) + 1)]
    for name in names:
        if any(request.sandbox == name for request in requests):
            yield None
        else:
            yield wrong_run("unused", [], sandbox=name, count=len(names))
    crash = next((event for event in run.crashes if event["event"] == "crash"), None)
    restart = next((event for event in run.crashes if event["event"] == "restart"), None)
    if crash is None or restart is None:
        return
    down = [request for request in requests if request.sandbox == crash["sandbox"]]
    if any(request.at < crash["at"] for request in down):
        if any(request.at >= restart["at"] for request in down):
            yield None
        else:
            seconds = run.ended - restart["at"]
            about = {"sandbox": crash["sandbox"], "seconds": seconds}
            yield wrong_run("not_recovered", [crash, restart], **about)
    if not retries:
        return  # it makes one attempt only
    for call in calls:
        after = call.asked_at - crash["at"]
        soon = _OUTAGE * run.settings.scale + run.tolerance
        if soon < after < restart["at"] - crash["at"]:
            yield unless(call.answered, "outage", call, after=after)
