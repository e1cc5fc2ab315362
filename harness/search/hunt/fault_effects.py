"""What the faults of a case do to an attempt, and to the call: read from their rules, before anything is played."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from sfusion.fakes.faults import Action, Distribution, Rule
from sfusion.fakes.faults.action import ContentFault
from sfusion_tools.outcome import Outcome

ANY_FAILURE = frozenset(one.value for one in Outcome if not one.is_from_program) - {"bad_arguments", "cancelled"}
_OUTCOMES: dict[str, frozenset[str]] = {
    "delay": frozenset({"transport_timeout", "unreachable", "program_timeout"}),
    "degrade": frozenset({"transport_timeout", "program_timeout"}),
    "hang": frozenset({"transport_timeout", "unreachable"}),
    "reset": frozenset({"unreachable", "bad_response"}),
    "close": frozenset({"unreachable"}),
    "drip": frozenset({"transport_timeout"}),
    "content_type": frozenset(),
    "sandbox_error": frozenset({"sandbox_error"}),
    "timeout": frozenset({"program_timeout", "transport_timeout"}),
}
"""How a call may end because of a fault; by any failure of the infrastructure for kinds that are not here."""
REFUSED_FOR_NOW = (429, 503)
BROKEN_FOR_NOW = (502, 504)
_SHORT = 0.5
"""Seconds by which any attempt may be delayed."""


def longest(distribution: Distribution) -> float:
    """Return the longest duration that a distribution gives, nearly."""
    numbers = distribution.numbers
    match distribution.shape:
        case "normal":
            return numbers[0] + 6 * numbers[1]
        case "lognormal":
            return numbers[0] * math.exp(6 * numbers[1])
        case "exponential":
            return 20 * numbers[0]
    return max(numbers)


def longest_wait(rule: Rule) -> float:
    """Return how long a rule delays a request."""
    return sum(longest(one.delay) for one in rule.what if hasattr(one, "delay"))


def late_actions(rule: Rule) -> Iterable[Action]:
    """Return what strikes after the program has been started."""
    for phase, actions in rule.actions_by_phase.items():
        if phase in ("during", "after", "body"):
            yield from actions


def is_harmless(rule: Rule) -> bool:
    """Does every attempt that the rule strikes succeed all the same?"""
    for phase, actions in rule.actions_by_phase.items():
        for action in actions:
            if action.kind == "content_type" or (action.kind == "output" and _keeps_stdout(action)):
                continue
            if action.kind == "delay" and phase != "during" and longest_wait(rule) <= _SHORT:
                continue
            return False
    return True


def _keeps_stdout(action: Any) -> bool:
    return action.what in ("lost", "null", "cut") and action.stream == "stderr"


def is_transient(action: Any, rule: Rule, may_have_run: bool) -> bool:
    """Is the attempt worth another one, which this rule does not strike?"""
    limited = rule.first_attempts is not None
    match action.kind:
        case "status" if action.status in REFUSED_FOR_NOW and not action.headers:
            late = rule.phase in ("during", "after")
            return isinstance(asked_wait(action), float) and asked_wait(action) < 5 and not (late and not may_have_run)
        case "status" if action.status in BROKEN_FOR_NOW and not action.headers:
            return limited and may_have_run and asked_wait(action) < 5
        case "reset" | "close":
            return limited and may_have_run
        case "truncate":
            return limited and may_have_run and action.then == "close" and 0 < action.at < 1
        case "hang":
            return rule.first_attempts == 1 and may_have_run and action.seconds is None and rule.phase != "connect"
    return False


def lies(action: Any) -> bool:
    """Does the sandbox give a result that is not the program's?"""
    if action.kind == "output":
        return action.stream != "stderr" and action.what not in ("huge", "not_utf8")
    return isinstance(action, ContentFault) and action.kind != "sandbox_error"


def asked_wait(action: Any) -> float:
    """Return the seconds of Retry-After, infinity for anything that is not a number."""
    asked = getattr(action, "retry_after", None)
    if asked is None:
        return 0.0
    return float(asked) if isinstance(asked, int | float) else math.inf


def outcomes_of(action: Any) -> frozenset[str]:
    if action.kind == "status":
        if action.status == 429:
            return frozenset({"throttled"})
        if action.status >= 500:
            return frozenset({"sandbox_error"})
        return frozenset({"bad_response", "sandbox_error"}) if action.status == 200 else frozenset({"bad_response"})
    if action.kind == "output":
        return frozenset({"bad_response"}) if action.what == "not_utf8" else frozenset()
    if action.kind == "hang" and action.seconds is not None:
        return _OUTCOMES["hang"] | {"bad_response"}  # then the connection is closed, perhaps amid the answer
    return _OUTCOMES.get(action.kind, ANY_FAILURE)
