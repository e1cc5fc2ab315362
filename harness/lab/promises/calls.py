"""Promises about calls: each returns, and ends once."""

from __future__ import annotations

from typing import ClassVar

from ...core.events import SandboxEvent
from ...core.run_events import CallEvents, RunEvents, attempt_of
from ...core.verdict import Verdict
from ..single_calls.suite import SuiteFacts
from .base import ROUNDED, Promise, evidence
from .findings import Findings
from .single_call_results import find_exceptions


class ToolNeverRaises(Promise):
    """The tool never raises: the model would read a traceback, and verl scores the call 0. Judged
    in every run. A client whose shape reports failures as exceptions may raise where the sandbox
    failed or the arguments are wrong."""

    needs = "ending"
    sentences: ClassVar = {
        "raised": "the tool raised {what} ({call}, {place})",
        "raised_somewhere": "the tool raised {what} ({call})",
        "held": "{made:call}, none raised",
        "raised_single": "{call} ({end}): raised {what}{lacks}",
    }
    of_single_calls = (
        "The client returns a result. Only a shape that reports failures as exceptions may raise: "
        "where the sandbox failed, and where the program failed if the exception carries its "
        "output and exit code, in its message or in attributes, as "
        "`subprocess.CalledProcessError` does."
    )
    unseen = "no call ended"
    identity = ("raised", "function", "end")  # a line moves with every edit above it

    def find(self, facts: SuiteFacts) -> Findings:
        return find_exceptions(facts)

    def check(self, run: RunEvents) -> Verdict:
        raised = [call for call in run.made if call.raised]
        if not run.made:
            return self.unknown("no_call")
        if not raised:
            return self.held(made=len(run.made))
        first = raised[0]
        returned = first.returned
        assert returned is not None, "it raised"
        place = returned.get("raised_at")
        return self.broken(
            "raised" if place else "raised_somewhere",
            evidence(first),
            len(raised),
            raised=returned["raised"],
            what=returned.get("text") or returned["raised"],
            call=first.call,
            place=place,
            function=returned.get("raised_in"),
        )


class EveryCallEndsOnce(Promise):
    """Every call ends exactly once, and sends nothing after its end. Calls of a killed worker are
    lost with it and excused, and so are calls that no worker was left to make."""

    needs = "ending"
    sentences: ClassVar = {
        "never_ended": "call {call} never ended",
        "ended_often": "call {call} ended {times} times",
        "sent_late": "call {call} sent a request {late:.3g} s after it had ended",
        "client_differs": (
            "call {call} was started {started:time} and ended {ended:time} by the client"
        ),
        "not_made": "only {made} of {planned} calls were ever made",
        "held": "{made:call}, each ended once",
        "held_lost": "{made:call}, each ended once; {lost} lost with their worker",
        "held_not_made": (
            "{made:call}, each ended once; {not_made} not made, because no worker was left"
        ),
        "held_lost_not_made": "{made:call}, each ended once; {lost} lost with their "
        "worker; {not_made} not made, "
        "because no worker was left",
    }

    def check(self, run: RunEvents) -> Verdict:
        if not run.made:
            return self.unknown("no_call")
        is_exact = run.journal.header.get("world") == "sim"
        on_the_way = ROUNDED if is_exact else _ON_THE_WAY
        wrong: list[Verdict] = []
        has_cut_off = False
        for call in run.made:
            if _is_cut_off(call, run):
                has_cut_off = True
                continue
            found = self._wrong_end(call, on_the_way)
            if found is not None:
                wrong.append(found)
        if wrong:
            return self.first(wrong)
        return self._all_made(run, has_cut_off=has_cut_off)

    def _wrong_end(self, call: CallEvents, on_the_way: float) -> Verdict | None:
        """Return how a call did not end once, and with its last request."""
        times = len(call.endings)
        if times != 1:
            kind = "ended_often" if times else "never_ended"
            return self.broken_by(call, kind, times=times)
        end = call.endings[0]
        if end["event"] == "lost":
            return None
        late = _sent_late(call, on_the_way)
        if late is not None:
            after = late["at"] - end["at"]
            return self.broken("sent_late", [end, late], call=call.call, late=after)
        started = len(call.of_client("call_started"))
        ended = len(call.of_client("call_ended"))
        if started > 1 or ended != started:
            return self.broken_by(call, "client_differs", started=started, ended=ended)
        return None

    def _all_made(self, run: RunEvents, *, has_cut_off: bool) -> Verdict:
        """Judge whether all calls were made, of a run in which each ended that could."""
        made = len(run.made)
        planned = run.began.get("calls") or made
        not_made = planned - made
        off = run.of_world("broken_off")
        if off and (has_cut_off or not_made > 0):
            return self.unknown("broken_off", after=off[0]["after"], made=made, planned=planned)
        callers = {call.called["worker"] for call in run.made if call.called is not None}
        if not_made > 0 and not callers <= run.deaths.keys():
            return self.broken("not_made", run.world[-3:], made=made, planned=planned)
        lost = sum(call.endings[0]["event"] == "lost" for call in run.made)
        kind = "held"
        if lost:
            kind += "_lost"
        if not_made > 0:
            kind += "_not_made"
        return self.held(kind, made=made, lost=lost, not_made=not_made)


_PATIENCE = 600.0
"""Seconds after which a call that has not ended never will, where the tool states no deadline.

Chosen: longer than any deadline of the scenarios."""


def _is_cut_off(call: CallEvents, run: RunEvents) -> bool:
    """Did the horizon come before a call had to have ended?"""
    off = run.of_world("broken_off")
    if call.endings or call.called is None or not off:
        return False
    took = off[0]["at"] - call.called["at"]
    return bool(took <= (call.called.get("allowed") or _PATIENCE))


_ON_THE_WAY = 0.5
"""Seconds that a request may take to the sandbox where time is real. Chosen: far more than a busy
machine needs."""


def _sent_late(call: CallEvents, on_the_way: float) -> SandboxEvent | None:
    """Return the first request that was sent after a call had ended.

    Only those count whose client was there to read on.
    """
    ended = call.endings[0]["at"]
    late = [request for request in call.of_server("arrived") if request["at"] > ended + on_the_way]
    if not late:
        return None
    answers = call.of_server("answered")
    read_on = {attempt_of(answer) for answer in answers if not answer.get("client_gone")}
    return next((request for request in late if attempt_of(request) in read_on), None)
