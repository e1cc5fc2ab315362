"""What single calls show about what is told: texts, ends, outcomes, exceptions and metrics."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from sfusion_tools.outcome import OUTCOMES

from ..facts.read import durations
from ..single_calls.calls import FAILED_ENDS, PROGRAM_ENDS, CallFacts
from ..single_calls.suite import SuiteFacts, played_ends
from .findings import Findings, Wrong, shown, unless, wrong, wrong_run

_NEAR = 0.1
"""By what share a number may differ from the time limit that it tells: it may be what it took.
Chosen."""
_METRIC_SLACK = 0.01
"""Seconds by which a metric may differ from the wire, in virtual time. Chosen."""


def number_of(reward: Any) -> float | None:
    return float(reward) if isinstance(reward, int | float) and not math.isnan(reward) else None


# -- text_is_truthful --


def find_misreadings(facts: SuiteFacts) -> Findings:
    """Find texts that are not what happened."""
    for call in played_ends(facts):
        if call.reading is None or call.ask.tests or call.refused:
            continue
        text = (call.returned.text if call.returned is not None else "")[:60]
        for misread in call.reading.wrong:
            lost = str(misread.details.get("lost", ""))[:60]
            about = {"missing": 0, **misread.details, "lost": lost, "stream": misread.stream}
            yield wrong(_KINDS[misread.kind], call, **about, text=text)
        if not call.reading.wrong:
            yield None
    yield from _limits_told(facts)


_KINDS = {
    "missing": "not_there",
    "changed": "changed",
    "cut_silently": "cut_silently",
    "cut_unnumbered": "cut_unnumbered",
    "cut_twice": "cut_twice",
    "cut_untrue": "cut_untrue",
    "repeated": "repeated",
    "foreign": "foreign",
    "scrambled": "scrambled",
    "stderr_first": "stderr_first",
    "null": "null",
    "inserted": "inserted",
}
"""The kind of a finding for each thing in which a text is not what happened."""


def _limits_told(facts: SuiteFacts) -> Findings:
    """Find time limits that are told alike though they differ: numbers of seconds are left out of
    wordings."""
    told: dict[float, dict[float, CallFacts]] = defaultdict(dict)
    for call in played_ends(facts):
        limit = call.requests[-1].fields.get("run_timeout") if call.requests else None
        if call.end != "timeout" or call.reading is None or not isinstance(limit, int | float):
            continue
        found = durations(call.reading.wording)
        if not any(math.isclose(seconds, limit, rel_tol=_NEAR) for seconds in found):
            for seconds in found:
                told[seconds][limit] = call
    for seconds, limits in told.items():
        if len(limits) > 1:
            calls = list(limits.values())
            about = {
                "others": " and ".join(call.name for call in calls[1:]),
                "limits": " and ".join(f"{limit:g}" for limit in limits),
            }
            yield wrong("limit", calls[0], **about, stream="", told=f"{seconds:g}")


# -- wordings --


def wordings(facts: SuiteFacts) -> dict[str, dict[str, CallFacts]]:
    """Return for each end the wordings that were met, each with the first call that had it.

    A program whose result the client never got did not come to its end: another promise says why.
    """
    met: dict[str, dict[str, CallFacts]] = defaultdict(dict)
    for call in played_ends(facts):
        if call.end in PROGRAM_ENDS and call.answered is None:
            continue
        end = "sandbox_failed" if call.refused else call.end
        counts = end not in ("failed", "cancelled") and not call.ask.tests
        if counts and call.wording is not None and _is_clear(call):
            met[end].setdefault(call.wording, call)
    return dict(met)


def _is_clear(call: CallFacts) -> bool:
    """Is all of a text that is not the program's the wording?"""
    reading = call.reading
    return call.refused or reading is None or not (reading.cut or reading.wrong)


def wordings_to_read(facts: SuiteFacts) -> dict[str, dict[str, CallFacts]]:
    """Return the wordings for each end, and for outputs that are cut: a number that is true may
    mislead there."""
    met = wordings(facts)
    for call in facts:
        reading = call.reading
        truth = call.truth
        if reading is None or truth is None or call.run.name == BOUNDS:
            continue
        if reading.cut and not reading.wrong:
            end = f"{len(truth.stdout or truth.stderr)} cut"
            met.setdefault(end, {})[call.wording or ""] = call
    return met


BOUNDS = "judge-bounds"
"""Its sizes depend on the client, so that its cuts are not compared with those of other runs."""


# -- outcomes --

_STATED: Mapping[str, Collection[str]] = {
    "ok": ("ok",),
    "ok_empty": ("ok",),
    "program_error": ("program_error",),
    "timeout": ("program_timeout",),
    "compile_error": ("compile_error",),
    "compiler_timeout": ("compile_error", "program_timeout"),
    "bad_arguments": ("bad_arguments",),
    "throttled": ("throttled",),
    "not_run": ("sandbox_error", "unreachable"),
    "may_have_run": ("sandbox_error", "unreachable", "transport_timeout", "bad_response"),
    "sandbox_failed": ("sandbox_error", "bad_response"),
}
"""The outcomes of sfusion's vocabulary that fit each end."""
_OF_SERVER: Mapping[str, Collection[str]] = {
    "ok": ("Success", "Finished"),
    "ok_empty": ("Success", "Finished"),
    "program_error": ("Failed", "Finished"),
    "compile_error": ("Failed", "Finished"),
    "timeout": ("Failed", "TimeLimitExceeded"),
    "compiler_timeout": ("Failed", "TimeLimitExceeded"),
}
"""The words of the server for the ends of programs, as a client passes them on: they tell few ends
apart by design."""
_SERVER_WORDS = frozenset(word for words in _OF_SERVER.values() for word in words)
_STATED_FAILURES = frozenset(outcome for end in FAILED_ENDS for outcome in _STATED[end])


def find_wrong_outcomes(facts: SuiteFacts) -> Findings:
    """Find stated outcomes that do not fit what happened, or that are the same for different
    ends."""
    for name in ("outcome", "stated", "status"):
        yield from _StatedField(facts, name).findings()
    for call in played_ends(facts):
        if call.returned is None or call.ask.tests:
            continue
        flag = call.returned.fields.get("infrastructure")
        if isinstance(flag, bool):
            about = {"end": call.end, "field": "infrastructure", "told": str(flag)}
            yield unless(flag == call.failed, "infrastructure", call, **about)


class _StatedField:
    """A field in which a client states how calls ended."""

    def __init__(self, facts: SuiteFacts, name: str) -> None:
        self._facts = facts
        self._name = name
        stated = [
            (call, call.returned.fields[name])
            for call in played_ends(facts)
            if call.returned is not None and name in call.returned.fields
        ]
        values = [value for _, value in stated]
        self._is_used = bool(stated)
        self._is_ours = all(value in OUTCOMES for value in values)
        self._is_passed_on = all(
            value in _SERVER_WORDS for call, value in stated if call.end in _OF_SERVER
        )
        self._knows_throttling = "throttled" in values
        self._groups: dict[str, str] = {}
        """The first group of ends that each value was stated for."""

    def findings(self) -> Findings:
        if not self._is_used:
            return
        for call in played_ends(self._facts):
            if call.returned is None or call.returned.raised:
                continue
            if call.end == "failed" or call.ask.tests:
                continue
            yield self._finding(call, call.returned.fields)

    def _finding(self, call: CallFacts, fields: Mapping[str, Any]) -> Wrong | None:
        value = fields.get(self._name)
        about = {"end": call.end, "field": self._name, "told": shown(value)}
        if self._name not in fields:
            return wrong("unstated", call, **about)
        if self._is_ours:
            return unless(value in self._fitting(call), "wrong", call, **about)
        if self._is_passed_on:
            return unless(value in _OF_SERVER.get(call.end, (value,)), "wrong", call, **about)
        group = _group_of(call.end)
        known = self._groups.setdefault(shown(value), group)
        apart = known != group and "compiler_timeout" not in (known, group)
        return unless(not apart, "same", call, **about, other=known)

    def _fitting(self, call: CallFacts) -> Collection[str]:
        """Return the outcomes that fit the end of a call."""
        coarse = call.end == "throttled" and not self._knows_throttling
        if call.set_aside or coarse:
            return _STATED_FAILURES
        return _STATED.get(call.end, OUTCOMES)


def _group_of(end: str) -> str:
    if end == "ok_empty":
        return "ok"
    return "failed" if end in FAILED_ENDS else end


# -- tool_never_raises --

_PROGRAM_FAILURES = ("program_error", "timeout", "compile_error", "compiler_timeout")
_LACKS = "; it may raise if the exception carries all output and the exit code"


def find_exceptions(facts: SuiteFacts) -> Findings:
    """Find what was raised, but for clients that report failures as exceptions."""
    lossy = {_type_raised(call) for call in played_ends(facts) if _lost_what_it_raised(call)}
    # First those that show what an exception lacks: they are the example.
    for call in sorted(played_ends(facts), key=lambda call: not _lost_what_it_raised(call)):
        if call.returned is None or call.ask.tests:
            continue
        carries_all = call.raised_with_all and _type_raised(call) not in lossy
        is_report = call.failed or call.end == "bad_arguments" or carries_all
        may_raise = "raises" in facts.takes and is_report
        # SystemExit is no report: it ends the training's process.
        allowed = may_raise and not (call.returned.raised or "").startswith("SystemExit")
        what = str(call.returned.raised)[:160]
        fine = allowed or not call.returned.raised
        lacks = _LACKS if call.end in _PROGRAM_FAILURES and "raises" in facts.takes else ""
        yield unless(fine, "raised_single", call, end=call.end, what=what, lacks=lacks)
    for run in facts.runs:
        for event in run.raised:
            about = {"call": run.name, "end": "begin and end", "what": event["text"][:160]}
            about["lacks"] = ""
            yield wrong_run("raised_single", [event], **about)


def _type_raised(call: CallFacts) -> str:
    raised = call.returned.raised if call.returned is not None else None
    return (raised or "").partition(":")[0]


def _lost_what_it_raised(call: CallFacts) -> bool:
    """Did it raise for a program that failed, without the output or the exit code?"""
    return call.end in _PROGRAM_FAILURES and bool(_type_raised(call)) and not call.raised_with_all


# -- metrics_are_true --


def find_untrue_metrics(facts: SuiteFacts) -> Findings:
    """Find metrics that are not those of their call, or not what the wire shows."""
    for call in played_ends(facts):
        if call.returned is None or call.returned.raised or not call.returned.fields:
            continue
        if call.later is not None:
            before = shown(dict(call.returned.fields))
            after = shown(dict(call.later))
            yield wrong("shared", call, field="", before=before, after=after)
            continue
        fields = call.returned.fields
        # What a sandbox that was down refused is not seen.
        seen = not call.run.has_events
        if seen:
            yield from _counted_metrics(call, fields)
        yield from _executions_told(call, fields)
        yield from _times_told(call, fields, seen=seen)
        yield None


def _counted_metrics(call: CallFacts, fields: Mapping[str, Any]) -> Findings:
    attempts = fields.get("attempts")
    if isinstance(attempts, int) and not call.ask.tests:
        sent = len(call.requests)
        about = {"field": "attempts", "told": attempts, "true": sent}
        yield unless(attempts == sent, "attempts", call, **about)
    status = fields.get("http_status")
    last = call.requests[-1].status if call.requests else 0
    if isinstance(status, int) and last:
        about = {"field": "http_status", "told": status, "true": last}
        yield unless(status == last, "status", call, **about)


def _executions_told(call: CallFacts, fields: Mapping[str, Any]) -> Findings:
    possible = fields.get("possible_executions")
    ran = sum(request.execution is not None for request in call.requests)
    if isinstance(possible, int) and possible < ran:
        yield wrong("executions", call, field="possible_executions", told=possible, true=ran)


def _times_told(call: CallFacts, fields: Mapping[str, Any], *, seen: bool) -> Findings:
    true = {"total_s": (call.ended_at or 0.0) - call.asked_at}
    if seen and len(call.requests) == 1:
        true["permit_wait_s"] = call.requests[0].at - call.asked_at
    for name, seconds in true.items():
        told = number_of(fields.get(name))
        if told is not None:
            right = abs(told - seconds) <= _METRIC_SLACK + call.run.tolerance
            yield unless(right, "time", call, field=name, told=told, true=seconds)
