"""Promises about single calls that are made at once."""

from __future__ import annotations

from typing import ClassVar

from ..single_calls.calls import CallFacts
from ..single_calls.suite import SuiteFacts
from .base import Promise
from .findings import Findings, unless, wrong_run
from .single_call_requests import intervals, stretches

_MANY = 8
"""Calls at once of which two at least must be under way together. Chosen: fewer may follow each
other by chance where programs are short."""


class CallsOverlap(Promise):
    """Single calls that are made at once are under way at once: the client neither sends them one
    after the other nor blocks the event loop with `time.sleep`."""

    takes = frozenset({"concurrent"})
    sentences: ClassVar = {
        "one_by_one": "{run}: {calls:call} were made at once, and never was more than one under "
        "way",
        "slept": "{run}: the client held up the event loop {times}x with time.sleep, for "
        "{seconds:.1f} s in which no other call of its process goes on",
    }
    unseen = "no calls were made at once; judge-wide makes many"

    def find(self, facts: SuiteFacts) -> Findings:
        for run in facts.runs:
            for event in run.blocked:
                about = {"times": event["times"], "seconds": event["seconds"]}
                yield wrong_run("slept", [event], run=run.name, **about)
            at_once = _made_at_once(facts.of(run))
            if len(at_once) < _MANY or run.divided:
                continue
            most = max((count for _, _, count in stretches(intervals(at_once))), default=0)
            evidence = at_once[0].evidence[:1]
            if most == 1:
                yield wrong_run("one_by_one", evidence, run=run.name, calls=len(at_once))
            else:
                yield None


def _made_at_once(calls: list[CallFacts]) -> list[CallFacts]:
    """Return the calls that were planned for one moment, with programs that take a while."""
    return [
        call
        for call in calls
        if call.planned.part.together
        and call.planned.part.at == calls[0].planned.part.at
        and call.planned.part.seconds
        and call.requests
    ]


def find_shared_answers(facts: SuiteFacts) -> Findings:
    """Find programs that ran less often than calls asked for them."""
    for run in facts.runs:
        by_program: dict[str, list[CallFacts]] = {}
        for call in facts.of(run):
            if call.owner and call.returned is not None and not call.returned.raised:
                by_program.setdefault(call.owner, []).append(call)
        for calls in by_program.values():
            sent = sum(len(call.requests) for call in calls)
            if len(calls) > 1:
                about = {"times": len(calls), "sent": sent}
                yield unless(sent >= len(calls), "shared", calls[-1], **about)
