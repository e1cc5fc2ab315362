"""Promises about calls: how often and how they end, how long they take, how many attempts they
make."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, model_validator

from sfusion_tools.errors import near
from sfusion_tools.outcome import PROGRAM_OUTCOMES, Outcome

from ....fakes.faults import Seconds
from ...core.journal import Event
from ...core.run_events import CallEvents, RunEvents, attempt_of
from ...core.verdict import Verdict
from ..single_calls.calls import SuiteFacts
from .base import Promise, evidence
from .findings import Findings
from .single_sent import find_duplicates, find_early_returns, find_late_ends
from .single_told import find_exceptions, find_wrong_outcomes

_SLACK = 1e-5
"""Journal times are rounded to microseconds."""
_SHARE = re.compile(r"(at least |at most )?([0-9]+(?:\.[0-9]+)?)(%?)")


class ToolNeverRaises(Promise):
    """The tool never raises: the model would read a traceback, and verl scores the call 0. Judged
    in every run. A client whose shape reports failures as exceptions may raise where the sandbox
    failed or the arguments are wrong."""

    needs = "ending"
    sentences: ClassVar = {
        "raised": "the tool raised {what} ({call}, {place})",
        "raised_somewhere": "the tool raised {what} ({call})",
        "held": "{made:call}, none raised",
        "raised_single": "{call} ({end}): raised {what}",
    }
    of_single_calls = (
        "The client returns a result. Only a shape that reports failures as exceptions may raise."
    )
    unseen = "no call ended"
    identity = ("raised", "function", "end")  # a line moves with every edit above it

    def find(self, facts: SuiteFacts) -> Findings:
        return find_exceptions(facts)

    def check(self, run: RunEvents) -> Verdict:
        raised = [call for call in run.made if call.raised]
        if not run.made:
            return self.unknown("no_call")
        if raised:
            returned = raised[0].returned or {}
            facts = {
                "raised": returned["raised"],
                "what": returned.get("text") or returned["raised"],
            }
            facts |= {
                "call": raised[0].call,
                "place": returned.get("raised_at"),
                "function": returned.get("raised_in"),
            }
            kind = "raised" if facts["place"] else "raised_somewhere"
            return self.broken(kind, evidence(raised[0]), len(raised), **facts)
        return self.held(made=len(run.made))


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
        on_the_way = _SLACK if run.journal.header.get("world") == "sim" else _ON_THE_WAY
        wrong: list[Verdict] = []
        cut_off = 0
        for call in run.made:
            times = len(call.endings)
            if not times and _is_cut_off(call, run):
                cut_off += 1
                continue
            if times != 1:
                kind = "ended_often" if times else "never_ended"
                wrong.append(self.broken_by(call, kind, times=times))
                continue
            if (late := _sent_late(call, on_the_way)) is not None:
                after = late["at"] - call.endings[0]["at"]
                wrong.append(
                    self.broken("sent_late", [call.endings[0], late], call=call.call, late=after)
                )
                continue
            started, over = len(call.of_client("call_started")), len(call.of_client("call_ended"))
            if call.endings[0]["event"] != "lost" and (started > 1 or over != started):
                wrong.append(self.broken_by(call, "client_differs", started=started, ended=over))
        if wrong:
            return self.first(wrong)
        made = len(run.made)
        not_made = (run.began.get("calls") or made) - made
        callers = {call.called["worker"] for call in run.made if call.called is not None}
        if off := run.of_world("broken_off") if cut_off or not_made > 0 else []:
            return self.unknown(
                "broken_off", after=off[0]["after"], made=made, planned=made + not_made
            )
        if not_made > 0 and not callers <= run.deaths.keys():
            return self.broken("not_made", run.world[-3:], made=made, planned=made + not_made)
        lost = sum(call.endings[0]["event"] == "lost" for call in run.made)
        kind = f"held{'_lost' if lost else ''}{'_not_made' if not_made > 0 else ''}"
        return self.held(kind, made=made, lost=lost, not_made=not_made)


_PATIENCE = 600.0
"""Seconds after which a call that has not ended never will, where the tool states no deadline."""


def _is_cut_off(call: CallEvents, run: RunEvents) -> bool:
    """Did the horizon come before a call had to have ended?"""
    off, called = run.of_world("broken_off"), call.called
    return bool(
        off and called and off[0]["at"] - called["at"] <= (called.get("allowed") or _PATIENCE)
    )


_ON_THE_WAY = 0.5
"""Seconds that a request may take to the sandbox where time is real."""


def _sent_late(call: CallEvents, on_the_way: float) -> Event | None:
    """Return the first request that was sent for a call after it had ended and whose client was
    there to read on."""
    end = call.endings[0]
    if end["event"] == "lost":
        return None
    late = [one for one in call.of_server("arrived") if one["at"] > end["at"] + on_the_way]
    if not late:
        return None
    read_on = {attempt_of(one) for one in call.of_server("answered") if not one.get("client_gone")}
    return next((one for one in late if attempt_of(one) in read_on), None)


def _amount(value: Any) -> Any:
    if isinstance(value, str) and (found := _SHARE.fullmatch(value.strip())) is not None:
        if (found[1], float(found[2])) in (
            ("at least ", 0.0),
            ("at most ", 100.0 if found[3] else math.inf),
        ):
            raise ValueError(
                f"{value!r} cannot be broken; write `any` if the outcome may occur in any number"
            )
        return value.strip()
    if value in ("all", "none", "some", "any") or (
        isinstance(value, int) and not isinstance(value, bool) and value >= 0
    ):
        return value
    raise ValueError(
        f"{value!r} is not an amount; use all, none, some, any, a number, 'at least 5', "
        "'at most 2%' or 'at least 90%'"
    )


Amount = Annotated[int | str, BeforeValidator(_amount)]


class Outcomes(Promise):
    """Calls end as stated: `{ok: all}`, `{ok: at least 90%, throttled: some}`. Outcomes that are
    not named must not occur, and neither must calls that never end. Calls cancelled by their caller
    count only if `cancelled` is named; calls lost with their worker never count. For a tool that
    states no outcome, the sandbox's ledger says which calls got the result of their program; the
    others count as any infrastructure failure that is named. Of single calls, the outcomes that are
    stated fit what happened, and ends that must be told apart are stated differently.
    """

    implied: ClassVar[bool] = False
    needs = "ending"
    sentences: ClassVar = {
        "not_stated": "the tool states no outcome, and nobody else knows how real code ended",
        "nothing": "no call ended with an outcome",
        "not_allowed": (
            "{count} of {total} calls ended {outcome}, which the promise does not allow ({summary})"
        ),
        "not_as_promised": (
            "{count} of {total} calls ended {outcome}, promised {promised} ({summary})"
        ),
        "held": "{summary}",
        "wrong": "{call} ({end}): {field} says {told}",
        "unstated": "{call} ({end}): {field} is missing, which other calls have",
        "same": "{end} and {other}: {field} says {told} for both",
        "infrastructure": "{call} ({end}): infrastructure says {told}",
    }
    of_single_calls = (
        "A stated outcome fits what happened, and ends that must be distinguishable are "
        "stated differently."
    )
    unseen = "no result has a field `outcome`, `stated`, `status` or `infrastructure`"
    identity = ("outcome", "end", "field")

    expected: dict[str, Amount] = Field(
        min_length=1, description="how many calls end with which outcome"
    )

    @model_validator(mode="before")
    @classmethod
    def _direct(cls, value: Any) -> Any:
        return (
            value if isinstance(value, dict) and set(value) == {"expected"} else {"expected": value}
        )

    @model_validator(mode="after")
    def _known(self) -> Outcomes:
        known = [outcome.value for outcome in Outcome]
        for key in self.expected:
            if key not in known:
                raise ValueError(f"{key!r} is not an outcome; {near(key, known)}")
        return self

    def find(self, facts: SuiteFacts) -> Findings:
        return find_wrong_outcomes(facts)

    def check(self, run: RunEvents) -> Verdict:
        found: Counter[str] = Counter()
        example: dict[str, list[Event]] = {}
        for call in run.made:
            outcome = self._outcome(call)
            if outcome is not None:
                found[outcome] += 1
                example.setdefault(outcome, evidence(call))
        total = sum(found.values())
        if _UNCLEAR in found:
            return self.not_shown(run, "not_stated")
        if not total:
            return self.unknown("nothing")
        summary = [f"{name} {count}" for name, count in found.most_common()]
        for outcome, count in found.items():
            if outcome not in self.expected:
                facts = {"count": count, "total": total, "outcome": outcome, "summary": summary}
                return self.broken("not_allowed", example[outcome], count, **facts)
        unclear = (
            sum(name not in PROGRAM_OUTCOMES for name in self.expected) > 1
            and not run.states_outcomes
        )
        for outcome, amount in self.expected.items():
            if unclear and outcome not in PROGRAM_OUTCOMES:
                continue  # nobody can say which of several failures it was
            if not _fits(amount, found[outcome], total):
                others = next(
                    (example[name] for name in found if name != outcome), example.get(outcome, [])
                )
                facts = {
                    "count": found[outcome],
                    "total": total,
                    "outcome": outcome,
                    "summary": summary,
                }
                return self.broken("not_as_promised", others, **facts, promised=amount)
        return self.held(summary=summary)

    def _outcome(self, call: CallEvents) -> str | None:
        """Return how a call counts; None if it does not."""
        returned = call.returned
        if returned is None:
            how = call.endings[0]["event"] if call.endings else _UNFINISHED
            return (
                how if how == _UNFINISHED or (how == "cancelled" and how in self.expected) else None
            )
        if returned.get("raised"):
            return f"raised {returned['raised']}"
        stated: str | None = returned.get("outcome")
        if stated is not None:
            return stated
        kind = call.intent.get("kind")
        if kind == "bad_arguments" or (call.results and kind in PROGRAM_OUTCOMES):
            return str(kind)
        if kind not in (*PROGRAM_OUTCOMES, "sandbox_error"):
            return "ok" if call.results and set(self.expected) == {"ok"} else _UNCLEAR
        infrastructure = (
            name
            for name in self.expected
            if name not in (*PROGRAM_OUTCOMES, "bad_arguments", "cancelled")
        )
        return next(infrastructure, "infrastructure failure")


_UNFINISHED, _UNCLEAR = "unfinished", "unclear"


def _fits(amount: int | str, count: int, total: int) -> bool:
    match amount:
        case "all":
            return count == total
        case "none":
            return count == 0
        case "some":
            return count > 0
        case "any":
            return True
        case int():
            return count == amount
    found = _SHARE.fullmatch(amount)
    assert found is not None
    bound = float(found[2]) * (total / 100 if found[3] else 1)
    if found[1] == "at least ":
        return count >= bound - 1e-9
    if found[1] == "at most ":
        return count <= bound + 1e-9
    return abs(count - bound) < 0.5


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
        most = unseen = 0
        for call in run.made:
            if not run.has_client and not call.server and self.at_least:
                unseen += 1
                continue
            made = len(
                call.of_client("attempt_started") if run.has_client else call.of_server("arrived")
            )
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
    if call.server:
        sent = [one for one in call.server if one.get("retry_after") is not None]
        # The client may have read the head of one whose body broke off.
        return len([one for one in sent if one["event"] == "unanswered" or one["status"] == 429])
    # Code without a mark, as in a malformed call: the sandbox does not know whose it is.
    asked = {one["attempt"] for one in call.of_client("backing_off") if one["asked"] is not None}
    ended = call.of_client("attempt_ended")
    return len([one for one in ended if one["attempt"] in asked and one.get("status") == 429])


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

    def check(self, run: RunEvents) -> Verdict:
        asked = again = 0
        wrong: list[Verdict] = []
        for call in run.made:  # code without a mark cannot be told apart from that of other calls
            if not any("retry_after" in one for one in call.server):
                continue
            until, why = -1.0, None
            broken_off = {
                attempt_of(one) for one in call.of_server("strike") if one.get("phase") == "body"
            }
            read = {id(one) for one in call.answers if attempt_of(one) not in broken_off}
            for event in call.server:
                if event["event"] == "arrived" and why is not None:
                    again += 1
                    if event["at"] < until - _SLACK:
                        early = until - event["at"]
                        wrong.append(
                            self.broken("early", [why, event], call=call.call, early=early)
                        )
                wait = _seconds(event.get("retry_after")) if id(event) in read else None
                if wait is not None:
                    asked += 1
                    until, why = event["at"] + wait, event
        if wrong:
            return self.first(wrong)
        if not again:
            return self.unknown("never_again" if asked else "never_asked", asked=asked)
        return self.held("held_one" if asked == 1 else "held", asked=asked)


def _seconds(text: Any) -> float | None:
    try:
        return float(text)
    except (TypeError, ValueError):
        return None  # absent, or a date, which means nothing in virtual time


class DeadlineHonoured(Promise):
    """Every call ends within its deadline: the tool's own, or `within`. Waiting for a permit does
    not count."""

    needs = "ending"
    scalar = "within"
    sentences: ClassVar = {
        "late": "call {call} took {took:.4g} s, its deadline was {allowed:g} s",
        "no_deadline": "the tool's deadline is not known, and the promise does not state `within`",
        "nothing": "no call ended",
        "held": "the longest call took {longest:.3g} s, not counting waits for a permit",
        "never": "call {call} had not ended after {after:.0f} s{why}",
    }
    of_single_calls = "Every call ends, within its deadline if the client has one."
    unseen = "no call was made"

    within: Seconds | None = Field(
        None,
        description="seconds from start to end of a call, without the time it waits for a permit",
    )

    def find(self, facts: SuiteFacts) -> Findings:
        return find_late_ends(facts)

    def check(self, run: RunEvents) -> Verdict:
        wrong: list[Verdict] = []
        longest = 0.0
        last = run.journal.events[-1]["at"] if run.journal.events else 0.0
        judged = unbounded = 0
        for call in run.made:
            allowed = self.within or (call.called or {}).get("allowed")
            if allowed is None:
                unbounded += 1
                continue
            if call.endings and (call.endings[0]["event"] == "lost" or _gave_up_waiting(call)):
                continue
            judged += 1
            since = call.called["at"] if call.called else 0.0
            until = call.endings[0]["at"] if call.endings else last
            waited = sum(event["waited"] for event in call.of_client("permit_granted"))
            returned = call.returned
            if returned is not None and returned.get("waited") is not None:
                waited = max(waited, returned["waited"])
            took = until - since - waited
            longest = max(longest, took)
            # Besides the wait itself, messages to the limiter take time.
            if took > allowed + _SLACK + 0.05 * (1 + len(call.client)):
                wrong.append(self.broken_by(call, "late", took=took, allowed=allowed))
        if unbounded and not wrong:
            return self.not_shown(run, "no_deadline")
        return self.concluded(wrong, judged, longest=longest)


def _gave_up_waiting(call: CallEvents) -> bool:
    """Was the call cancelled while it waited for a permit? How long it had waited is not reported
    then."""
    started, ended = len(call.of_client("attempt_started")), len(call.of_client("attempt_ended"))
    return call.endings[0]["event"] == "cancelled" and bool(call.client) and started == ended


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

    def check(self, run: RunEvents) -> Verdict:
        wrong: list[Verdict] = []
        ran = forwarded = 0
        for call in run.made:
            starts, passed_on = call.of_server("started"), len(call.of_server("forwarded"))
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
        kind = f"{'forwarded' if forwarded else 'held'}{'_once' if self.at_most == 1 else ''}"
        return self.held(kind, judged=forwarded or ran, bound=self.at_most)
