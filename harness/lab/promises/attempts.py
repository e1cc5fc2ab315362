"""Promises about attempts: how many a call makes, when the next may come, and that a program runs
once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from pydantic import Field, model_validator

from ...core.events import SandboxEvent
from ...core.run_events import CallEvents, RunEvents, attempt_of
from ...core.sandbox_lives import SandboxLives
from ...core.verdict import Verdict
from ..single_calls.suite import SuiteFacts
from .base import ROUNDED, Promise
from .episode_results import find_early_creates, find_repeated_commands
from .findings import Findings
from .single_call_requests import find_duplicates, find_early_returns


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


class RetryAfterHonoured(Promise):
    """No call is retried before its Retry-After has passed. Judged at the sandbox; unknown if no
    call is retried."""

    needs = "ending"
    sentences: ClassVar = {
        "early": "call {call} was sent again {early:.3g} s before its Retry-After was over",
        "never_asked": "the sandbox never sent Retry-After",
        "never_again": "{asked:Retry-After header}, but no call was sent again",
        "held_one": "1 Retry-After header was respected",
        "held": "{asked} Retry-After headers, all respected",
        "early_date": (
            "call {call} was sent again {early:.2f} s before the date in its Retry-After"
        ),
        "hammered": (
            "call {call} was refused {times:time} without Retry-After, and sent again at once each "
            "time"
        ),
    }
    of_single_calls = (
        "After a 429 or 503 the client waits as long as Retry-After asks, in seconds or as a "
        "date; else it pauses."
    )
    unseen = (
        "no call was sent again after a 429 or 503 with Retry-After, as of a client "
        "with one attempt"
    )

    def find(self, facts: SuiteFacts) -> Findings:
        return find_early_returns(facts)

    def judge_episodes(self, facts: SandboxLives) -> Iterator[Verdict | None]:
        return self.of_findings(find_early_creates(facts))

    def check(self, run: RunEvents) -> Verdict:
        asked = 0
        again = 0
        wrong: list[Verdict] = []
        for call in run.made:  # code without a mark cannot be told apart from that of other calls
            waits = _asked_to_wait(call)
            asked += len(waits)
            latest: SandboxEvent | None = None
            for event in call.server:
                if event["event"] == "arrived" and latest is not None:
                    again += 1
                    early = latest["at"] + waits[id(latest)] - event["at"]
                    if early > ROUNDED:
                        wrong.append(
                            self.broken("early", [latest, event], call=call.call, early=early)
                        )
                if id(event) in waits:
                    latest = event
        if wrong:
            return self.first(wrong)
        if not again:
            return self.unknown("never_again" if asked else "never_asked", asked=asked)
        return self.held("held_one" if asked == 1 else "held", asked=asked)


def _asked_to_wait(call: CallEvents) -> dict[int, float]:
    """Return for each answer that a client could read the seconds for which it must wait."""
    if not any("retry_after" in event for event in call.server):
        return {}
    strikes = call.of_server("strike")
    broken_off = {attempt_of(strike) for strike in strikes if strike.get("phase") == "body"}
    waits: dict[int, float] = {}
    for answer in call.answers:
        seconds = _seconds(answer.get("retry_after"))
        if seconds is not None and attempt_of(answer) not in broken_off:
            waits[id(answer)] = seconds
    return waits


def _seconds(text: Any) -> float | None:
    try:
        return float(text)
    except (TypeError, ValueError):
        return None  # absent, or a date, which means nothing in virtual time


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
