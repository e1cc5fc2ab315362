"""Promises about calls: each returns, ends once, makes few attempts, and runs its program once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field, model_validator

from ...core.events import SandboxEvent
from ...core.run_events import CallEvents, RunEvents, attempt_of
from ...core.sandbox_lives import SandboxLives
from ...core.verdict import Verdict
from ..single_calls.suite import SuiteFacts
from .base import ROUNDED, Promise, evidence
from .episode_results import find_repeated_commands
from .findings import Findings
from .single_call_requests import find_duplicates
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


class AttemptsPerCall(Promise):
    """No call makes more HTTP requests than `at_most` or fewer than `at_least`. Requests answered
    with 429 and Retry-After do not count towards `at_most`: the sandbox was full and said when to
    come back."""

    implied: ClassVar[bool] = False
    needs = "ending"
    scalar = "at_most"
    sentences: ClassVar = {
        "too_many": "call {call} made {made:attempt}, at most {bound} promised",
        "too_few": "call {call} made {made:attempt}, at least {bound} promised",
        "unseen": "the sandbox saw no attempt, and the tool reports none",
        "held": "at most {most:attempt} per call",
    }

    at_most: int | None = Field(None, ge=0, description="maximum number of requests for one call")
    at_least: int | None = Field(
        None, ge=1, description="minimum number of requests for a call that returned"
    )

    @model_validator(mode="after")
    def _something(self) -> AttemptsPerCall:
        if self.at_most is None and self.at_least is None:
            raise ValueError("give at_most or at_least")
        return self

    def check(self, run: RunEvents) -> Verdict:
        # Counted at the sandbox for clients that do not report their attempts; it does not see
        # refused connections.
        wrong: list[Verdict] = []
        most = 0
        unseen = 0
        for call in run.made:
            if not run.has_client and not call.server and self.at_least:
                unseen += 1
                continue
            reported = call.of_client("attempt_started")
            made = len(reported if run.has_client else call.of_server("arrived"))
            counting = made - _orders_to_wait(call)
            most = max(most, counting)
            if self.at_most is not None and counting > self.at_most:
                wrong.append(self.broken_by(call, "too_many", made=made, bound=self.at_most))
            elif self.at_least is not None and made < self.at_least and call.returned is not None:
                wrong.append(self.broken_by(call, "too_few", made=made, bound=self.at_least))
        if wrong:
            return self.first(wrong)
        if not run.made:
            return self.unknown("no_call")
        return self.not_applicable("unseen") if unseen == len(run.made) else self.held(most=most)


def _orders_to_wait(call: CallEvents) -> int:
    """Count the requests of a call that were answered with 429 and Retry-After."""
    if call.server:
        sent = [event for event in call.server if event.get("retry_after") is not None]
        # The client may have read the head of an answer whose body broke off.
        return sum(event["event"] == "unanswered" or event["status"] == 429 for event in sent)
    # Code without a mark, as in a malformed call: the sandbox does not know whose it is.
    pauses = call.of_client("backing_off")
    asked = {pause["attempt"] for pause in pauses if pause["asked"] is not None}
    ended = [end for end in call.of_client("attempt_ended") if end["attempt"] in asked]
    return sum(end.get("status") == 429 for end in ended)


class NoDuplicateExecution(Promise):
    """The program of a call is executed at most once (or `at_most` times), according to the
    sandbox's ledger. Single calls are sent again only after an attempt failed, and never after they
    ended.

    With a real sandbox only the forwarded requests can be counted. If there are more than promised,
    the result is unknown, because only the sandbox knows whether the program ran each time.
    """

    implied: ClassVar[bool] = False
    needs = "ending"
    scalar = "at_most"
    sentences: ClassVar = {
        "executed_often": (
            "the program of call {call} was executed {times} times, at most {bound} promised"
        ),
        "forwarded_often": (
            "call {call} was forwarded {times} times; only the sandbox knows how often it ran"
        ),
        "nothing": "nothing was executed",
        "forwarded_once": "{judged:program} forwarded, none more than once",
        "forwarded": "{judged:program} forwarded, none more than {bound} times",
        "held_once": "{judged:program} ran, none more than once",
        "held": "{judged:program} ran, none more than {bound} times",
        "again": "call {call} was sent {times:time} although no attempt had failed",
        "late": "call {call} sent a request after it had ended",
        "after_result": "call {call} was sent again although its result had come",
    }
    of_single_calls = (
        "A call is sent again only after an attempt failed, and never after the call has ended."
    )
    unseen = "no request came"

    at_most: int = Field(1, ge=1, description="maximum number of executions of one call")

    def find(self, facts: SuiteFacts) -> Findings:
        return find_duplicates(facts)

    def judge_episodes(self, facts: SandboxLives) -> Iterator[Verdict | None]:
        return self.of_findings(find_repeated_commands(facts, self.at_most))

    def check(self, run: RunEvents) -> Verdict:
        wrong: list[Verdict] = []
        ran = 0
        forwarded = 0
        for call in run.made:
            starts = call.of_server("started")
            passed_on = len(call.of_server("forwarded"))
            ran += bool(starts)
            forwarded += bool(passed_on)
            if passed_on > self.at_most:
                return self.unknown("forwarded_often", call=call.call, times=passed_on)
            if len(starts) > self.at_most:
                facts = {"call": call.call, "times": len(starts), "bound": self.at_most}
                wrong.append(self.broken("executed_often", starts, **facts))
        if wrong:
            return self.first(wrong)
        if not forwarded and not ran:
            return self.unknown("nothing")
        kind = "forwarded" if forwarded else "held"
        if self.at_most == 1:
            kind += "_once"
        return self.held(kind, judged=forwarded or ran, bound=self.at_most)
