"""The promise about deadlines: how long a call may take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field

from ....fakes.faults import Seconds
from ...core.run_events import CallEvents, RunEvents
from ...core.verdict import Verdict
from ..single_calls.suite import SuiteFacts
from .base import ROUNDED, Promise
from .findings import Findings
from .single_call_requests import find_late_ends, still_asked_to_wait


class DeadlineHonoured(Promise):
    """Every call ends within its deadline: the tool's own, or `within`. Waiting for a permit does
    not count, nor does time for which the machine itself stood still in world wall."""

    needs = "ending"
    scalar = "within"
    sentences: ClassVar = {
        "late": "call {call} took {took:.4g} s, its deadline was {allowed:g} s",
        "no_deadline": "the tool's deadline is not known, and the promise does not state `within`",
        "nothing": "no call ended",
        "held": "the longest call took {longest:.3g} s, not counting waits for a permit",
        "never": "call {call} had not ended after {after:.0f} s{why}",
        "left_behind": "call {call} {text}: nobody knows whether it ends{more}",
        "asked_to_wait": "call {call} had not ended after {after:.0f} s, because it waits as long "
        "as Retry-After asks each time: nobody knows whether it ends{more}",
    }
    of_single_calls = "Every call ends, within its deadline if the client has one."
    unseen = "no call was made"

    within: Seconds | None = Field(
        None,
        description="seconds from start to end of a call, without the time it waits for a permit",
    )

    def find(self, facts: SuiteFacts) -> Findings:
        return find_late_ends(facts)

    def doubt(self, facts: SuiteFacts) -> Verdict | None:
        left = [event for run in facts.runs for event in run.left_behind]
        if left:
            about = {"call": left[0]["name"], "text": left[0]["text"], "more": _and_more(left)}
            return self.unknown("left_behind", **about)
        waiting = still_asked_to_wait(facts)
        if waiting:
            call = waiting[0]
            after = call.run.ended - call.asked_at
            more = _and_more(waiting)
            return self.unknown("asked_to_wait", call=call.name, after=after, more=more)
        return None

    def check(self, run: RunEvents) -> Verdict:
        wrong: list[Verdict] = []
        longest = 0.0
        last = run.journal.events[-1]["at"] if run.journal.events else 0.0
        judged = 0
        unbounded = 0
        for call in run.made:
            stated = None if call.called is None else call.called.get("allowed")
            allowed = self.within or stated
            if allowed is None:
                unbounded += 1
                continue
            if call.endings and (call.endings[0]["event"] == "lost" or _gave_up_waiting(call)):
                continue
            judged += 1
            since = call.called["at"] if call.called else 0.0
            until = call.endings[0]["at"] if call.endings else last
            took = until - since - _waited(call) - run.stood_still(since, until)
            longest = max(longest, took)
            # Besides the wait itself, messages to the limiter take time.
            if took > allowed + ROUNDED + _MESSAGE * (1 + len(call.client)):
                wrong.append(self.broken_by(call, "late", took=took, allowed=allowed))
        if unbounded and not wrong:
            return self.not_shown(run, "no_deadline")
        return self.concluded(wrong, judged, longest=longest)


def _and_more(found: Sequence[Any]) -> str:
    return f" (and {len(found) - 1} more)" if len(found) > 1 else ""


_MESSAGE = 0.05
"""Seconds that a message to the limiter may take, for each event of a client. Chosen: more than a
busy machine needs, and far below any deadline."""


def _waited(call: CallEvents) -> float:
    """Return how long a call waited for permits, as its client or its tool reports it."""
    waited: float = sum(event["waited"] for event in call.of_client("permit_granted"))
    returned = call.returned
    told = None if returned is None else returned.get("waited")
    return waited if told is None else max(waited, told)


def _gave_up_waiting(call: CallEvents) -> bool:
    """Was the call cancelled while it waited for a permit?

    How long it had waited is not reported then.
    """
    if call.endings[0]["event"] != "cancelled" or not call.client:
        return False
    return len(call.of_client("attempt_started")) == len(call.of_client("attempt_ended"))
