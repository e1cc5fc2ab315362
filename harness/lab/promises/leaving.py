"""Promises about what single calls change and leave behind."""

from __future__ import annotations

from typing import ClassVar

from ..single_calls.calls import CallFacts, RunFacts
from ..single_calls.suite import SuiteFacts
from .base import Promise
from .findings import Findings, Wrong, shown, unless, wrong, wrong_run

_FOR_GOOD = 2
"""Sessions, and tasks of one name, that may outlive a client, such as one that a limiter of the
process keeps. Chosen."""
_FEW = 2
"""Connections that any client may keep. Chosen."""
_MODIFIABLE = frozenset({"arguments", "files", "headers", "tests"})


class ArgumentsUnchanged(Promise):
    """The client does not modify the arguments of single calls."""

    sentences: ClassVar = {"altered": "{call}: {how}"}
    unseen = "no call was given what can be modified, such as arguments, headers, files or tests"

    def find(self, facts: SuiteFacts) -> Findings:
        for call in facts:
            if call.returned is not None and facts.takes & _MODIFIABLE:
                altered = call.returned.altered
                yield unless(not altered, "altered", call, how=shown(altered, 160))


class NothingLeftBehind(Promise):
    """No task, request or connection outlives single calls."""

    sentences: ClassVar = {
        "tasks": "after {run} {left:task} of the client went on: {names}",
        "busy": "when the last call of {run} had ended, {left:request} of the client were in "
        "flight",
        "connections": "after {run} {left:connection} were open, of {most} that were needed at "
        "once",
        "sessions": "in {run} {left:session} of aiohttp were dropped without being closed",
    }
    unseen = "no run was played to its end"

    def find(self, facts: SuiteFacts) -> Findings:
        for run in facts.runs:
            if run.left is not None and not run.broken_off:
                yield from _left_behind(run, facts.of(run))
                yield None


def _left_behind(run: RunFacts, calls: list[CallFacts]) -> list[Wrong]:
    assert run.left is not None
    left = run.left
    found: list[Wrong] = []
    tasks = left["tasks"]
    many = sorted({task for task in tasks if tasks.count(task) > _FOR_GOOD})
    if many:
        found.append(wrong_run("tasks", [left], run=run.name, left=len(tasks), names=many))
    busy = left["busy"] - sum(_gave_up(call) for call in calls)
    if busy > 0:
        found.append(wrong_run("busy", [left], run=run.name, left=busy))
    most = _most_at_once(run, calls)
    if left["connections"] > max(_FEW, most * len(run.settings.urls)):
        about = {"left": left["connections"], "most": most}
        found.append(wrong_run("connections", [left], run=run.name, **about))
    # aiohttp says so where a session is collected.
    unclosed = [event for event in run.logged if "Unclosed client session" in event["text"]]
    if len(unclosed) > _FOR_GOOD:
        found.append(wrong_run("sessions", unclosed, run=run.name, left=len(unclosed)))
    return found


def _gave_up(call: CallFacts) -> bool:
    """Did a call end before its last request, whose program then goes on in the sandbox?"""
    if call.answered is not None or call.ended_at is None or not call.requests:
        return False
    last = call.requests[-1]
    return last.ended is None or last.ended > call.ended_at


def _most_at_once(run: RunFacts, calls: list[CallFacts]) -> int:
    """Return how many connections a client needed at once: one per request in flight, as it sees
    them.

    On a wall clock it may take another before it has put the last one back, but never more than it
    makes calls.
    """
    if not run.on_wall:
        return max((request.in_flight for request in run.requests), default=0)
    spans = []
    for call in calls:
        over = call.ended_at if call.ended_at is not None else float("inf")
        spans += [(call.asked_at, over)] * max(1, len(call.ask.tests))
    counts = [sum(begin <= at <= end for begin, end in spans) for at, _ in spans]
    return max(counts, default=0)


def find_held_instances(facts: SuiteFacts) -> Findings:
    """Find released instances of which the client still holds something."""
    for run in facts.runs:
        if run.left is None or run.broken_off:
            continue
        held = run.left["instances"]
        about = {"run": run.name, "held": len(held), "first": next(iter(held), "")}
        yield wrong_run("still_held", [run.left], **about) if held else None


class CancellationEndsACall(Promise):
    """A single call that is cancelled ends at once, and so does its request."""

    takes = frozenset({"cancel"})
    sentences: ClassVar = {
        "swallowed": "{call}: cancelled, but it returned {text}",
        "goes_on": "{call}: cancelled, but its request stayed in flight",
    }
    unseen = "no call was cancelled before its end; judge-cancelled plays some"

    def find(self, facts: SuiteFacts) -> Findings:
        for call in facts:
            if not call.cancelled or call.ended_at is None:
                continue
            if call.returned is not None:
                yield wrong(
                    "swallowed", call, text=shown(call.returned.text or call.returned.raised)
                )
                continue
            yield unless(not _is_in_flight(call, call.ended_at), "goes_on", call)


def _is_in_flight(call: CallFacts, ended: float) -> bool:
    """Is a request of a call in flight after its end?"""
    for request in call.requests:
        over = request.ended is not None and request.ended <= ended + call.run.tolerance
        if not over and not request.client_gone:
            return True
    return False
