"""The promise about outcomes: how many calls end in which way."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, model_validator

from sfusion_tools.errors import near
from sfusion_tools.outcome import PROGRAM_OUTCOMES, Outcome

from ...core.events import AnyEvent
from ...core.run_events import CallEvents, RunEvents
from ...core.verdict import Verdict
from ..single_calls.suite import SuiteFacts
from .base import Promise, evidence
from .findings import Findings
from .single_call_results import find_wrong_outcomes

_SHARE = re.compile(r"(at least |at most )?([0-9]+(?:\.[0-9]+)?)(%?)")


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
