"""Promises about calls: how they end, how long they take, how many attempts they make."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, model_validator

from sfusion_tools.errors import near
from sfusion_tools.outcome import PROGRAM_OUTCOMES, Outcome

from ....fakes.faults import Seconds
from ...core.events import AnyEvent, SandboxEvent
from ...core.journal import Event
from ...core.run_events import CallEvents, RunEvents, attempt_of
from ...core.sandbox_lives import SandboxLives
from ...core.verdict import Verdict
from ..single_calls.calls import SuiteFacts
from .base import Promise, evidence
from .episode_results import find_early_creates, find_repeated_commands
from .findings import Findings
from .single_call_requests import (
    find_duplicates,
    find_early_returns,
    find_late_ends,
    still_asked_to_wait,
)
from .single_call_results import find_exceptions, find_wrong_outcomes

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
        on_the_way = _SLACK if is_exact else _ON_THE_WAY
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


def _amount(value: Any) -> Any:
    share = _SHARE.fullmatch(value.strip()) if isinstance(value, str) else None
    if share is not None:
        if _always_fits(share):
            raise ValueError(
                f"{value!r} cannot be broken; write `any` if the outcome may occur in any number"
            )
        return share[0]
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if is_number or value in ("all", "none", "some", "any"):
        return value
    raise ValueError(
        f"{value!r} is not an amount; use all, none, some, any, a number, 'at least 5', "
        "'at most 2%' or 'at least 90%'"
    )


def _always_fits(share: re.Match[str]) -> bool:
    """Is a share one that any number of calls fits: at least none, or at most all?"""
    bound = float(share[2])
    if share[1] == "at least ":
        return bound == 0.0
    everything = 100.0 if share[3] else math.inf
    return share[1] == "at most " and bound == everything


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
        is_whole = isinstance(value, dict) and set(value) == {"expected"}
        return value if is_whole else {"expected": value}

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
        example: dict[str, list[AnyEvent]] = {}
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
                return self.broken(
                    "not_allowed",
                    example[outcome],
                    count,
                    count=count,
                    total=total,
                    outcome=outcome,
                    summary=summary,
                )
        wrong = self._wrong_amount(found, can_tell=self._can_tell_failures(run))
        if wrong is None:
            return self.held(summary=summary)
        others = [example[name] for name in found if name != wrong]
        return self.broken(
            "not_as_promised",
            others[0] if others else example.get(wrong, []),
            count=found[wrong],
            total=total,
            outcome=wrong,
            summary=summary,
            promised=self.expected[wrong],
        )

    def _can_tell_failures(self, run: RunEvents) -> bool:
        """Can anybody say which of the expected failures of the infrastructure a call met?"""
        failures = [name for name in self.expected if name not in PROGRAM_OUTCOMES]
        return len(failures) < 2 or run.states_outcomes

    def _wrong_amount(self, found: Counter[str], *, can_tell: bool) -> str | None:
        """Return the first outcome of which there were not as many as promised."""
        total = sum(found.values())
        for outcome, amount in self.expected.items():
            is_judged = can_tell or outcome in PROGRAM_OUTCOMES
            if is_judged and not _fits(amount, found[outcome], total):
                return outcome
        return None

    def _outcome(self, call: CallEvents) -> str | None:
        """Return how a call counts; None if it does not."""
        returned = call.returned
        if returned is None:
            if not call.endings:
                return _UNFINISHED
            is_cancelled = call.endings[0]["event"] == "cancelled"
            return "cancelled" if is_cancelled and "cancelled" in self.expected else None
        if returned.get("raised"):
            return f"raised {returned['raised']}"
        if returned.get("outcome") is not None:
            return str(returned["outcome"])
        return self._outcome_by_ledger(call)

    def _outcome_by_ledger(self, call: CallEvents) -> str:
        """Return how a call counts whose tool states no outcome."""
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


_UNFINISHED = "unfinished"
"""How a call counts that did not end."""
_UNCLEAR = "unclear"
"""How a call counts of which nobody knows how it ended."""


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
    unit = total / 100 if found[3] else 1
    bound = float(found[2]) * unit
    if found[1] == "at least ":
        return count >= bound - _ROUNDING
    if found[1] == "at most ":
        return count <= bound + _ROUNDING
    return abs(count - bound) < 0.5


_ROUNDING = 1e-9
"""Calls by which a share of them may be off, as floats are. Chosen: far below one call."""


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
                    if early > _SLACK:
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
        stops = [event for event in run.world if event["event"] == "lagged"]
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
            took = until - since - _waited(call) - _stood_still(stops, since, until)
            longest = max(longest, took)
            # Besides the wait itself, messages to the limiter take time.
            if took > allowed + _SLACK + _MESSAGE * (1 + len(call.client)):
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


def _stood_still(stops: Sequence[Event], since: float, until: float) -> float:
    """Return for how long the machine stood still between two moments, in world wall."""
    seconds = 0.0
    for stop in stops:
        began = max(since, stop["at"] - stop["seconds"])
        seconds += max(0.0, min(until, stop["at"]) - began)
    return seconds


def _gave_up_waiting(call: CallEvents) -> bool:
    """Was the call cancelled while it waited for a permit?

    How long it had waited is not reported then.
    """
    if call.endings[0]["event"] != "cancelled" or not call.client:
        return False
    return len(call.of_client("attempt_started")) == len(call.of_client("attempt_ended"))


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
