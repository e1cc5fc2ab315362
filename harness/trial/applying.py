"""Which promises do not apply to a client, as far as its calls show: it lacks what they are
about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..core.verdict import Verdict
from ..lab.single_calls.calls import CallFacts
from ..lab.single_calls.suite import SuiteFacts, played_ends

_CHANGEABLE = frozenset({"arguments", "headers", "files", "tests"})
"""What a call may be given that can be modified."""
_OF_PROGRAMS = (
    "answers_are_own", "calls_overlap", "exit_code_told", "infra_never_scored",
    "programs_waited_for", "tool_never_raises",
)  # fmt: skip
"""Promises about programs, and calls that are made at once. Of a reward function others judge the
scores and the samples of a batch."""


def without_absent(verdict: Verdict, facts: SuiteFacts) -> Verdict:
    """Return not applicable for what is unknown because the client lacks it, though the calls that
    would have shown it were played."""
    if verdict.state != "unknown" or verdict.how.kind != "calls_unseen":
        return verdict
    is_absent = _ABSENT.get(verdict.promise, _never)
    only_scores = verdict.promise in _OF_PROGRAMS and all(call.ask.tests for call in facts)
    if only_scores or is_absent(facts):
        return replace(verdict, state="not_applicable")
    return verdict


def _never(facts: SuiteFacts) -> bool:
    return False


def _returns(facts: SuiteFacts) -> bool:
    return any(call.returned is not None for call in facts)


def _returns_failures(facts: SuiteFacts) -> bool:
    return any(call.failed for call in played_ends(facts))


def _met_exit_codes(facts: SuiteFacts) -> bool:
    return any(call.truth is not None and call.truth.exit for call in played_ends(facts))


def _never_sends_again(facts: SuiteFacts) -> bool:
    """Was the client asked to wait, and is no call ever sent again?"""
    asked = any(request.retry_after for call in facts for request in call.requests)
    return asked and not any(map(_is_sent_again, facts))


def _is_sent_again(call: CallFacts) -> bool:
    return any(len(sent) > 1 for sent in call.attempts)


_ABSENT: Mapping[str, Callable[[SuiteFacts], bool]] = {
    "arguments_unchanged": lambda facts: not facts.takes & _CHANGEABLE,
    "exit_code_told": _met_exit_codes,
    "infra_never_scored": _returns_failures,
    "metrics_are_true": _returns,
    "outcomes": _returns,
    "retry_after_honoured": _never_sends_again,
    "reward_follows_the_end": _returns,
    "wordings_accepted": lambda facts: facts.accepted is None,
}
"""For each promise about something that a client may lack: did its calls show that it does?"""
