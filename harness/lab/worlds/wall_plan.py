"""How single calls are planned for a wall clock: gaps are short, slow calls run beside the others,
and calls that do not depend on each other are divided among several clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..scenarios.model import Scenario
from ..single_calls.planned import SingleCall

_LONGEST_GAP = 60.0
"""Seconds of a scenario in which nothing is planned: longer ones are shortened. Chosen."""
_CLIENTS = 10
"""How many clients share the calls of a scenario. Chosen."""


def slow_last(planned: list[SingleCall], scale: float) -> list[SingleCall]:
    """Let calls that may take for ever begin at once, beside the others, so that their times do not
    add up."""
    slow: list[SingleCall] = []
    others: list[SingleCall] = []
    for call in planned:
        if any(_is_slow(rule["what"], scale) for rule in call.faults):
            slow.append(_changed(call, together=True))
        else:
            others.append(call)
    return [*others, *slow]


def _changed(call: SingleCall, **changes: Any) -> SingleCall:
    return replace(call, part=call.part.model_copy(update=changes))


def _is_slow(what: Any, scale: float) -> bool:
    """Does a fault make a call wait for long, or for ever if its client is patient?"""
    if not isinstance(what, dict):
        return bool(what == "hang")
    drips = bool(what.get("drip", {}).get("bytes") == 1)
    return drips or float(what.get("retry_after", 0.0)) >= _LONGEST_GAP * scale


def with_short_gaps(
    scenario: Scenario, planned: list[SingleCall], scale: float
) -> tuple[list[SingleCall], list[dict[str, Any]]]:
    """Shorten the times in which nothing is planned; return the calls and the events."""
    events = [dict(event) for event in scenario.plain.get("events", [])]
    spans = [_span(event, scale) for event in events]
    times = {0.0, *(call.part.at for call in planned)}
    for span in spans:
        times.update(span)
    moved = _closer(times, _LONGEST_GAP * scale)
    for event, (begin, end) in zip(events, spans, strict=True):
        event["at"] = moved[begin]
        if "seconds" in event:
            event["seconds"] = moved[end] - moved[begin]
    return [_changed(call, at=moved[call.part.at]) for call in planned], events


def _closer(times: Iterable[float], longest: float) -> dict[float, float]:
    """Return each time as it is when no gap between two of them is longer."""
    moved: dict[float, float] = {}
    cut = 0.0
    before = 0.0
    for at in sorted(times):
        cut += max(0.0, at - before - longest)
        moved[at] = at - cut
        before = at
    return moved


def _span(event: dict[str, Any], scale: float) -> tuple[float, float]:
    """Return when an event begins and ends."""
    at = float(event["at"]) * scale
    return at, at + float(event.get("seconds") or 0.0) * scale


def divided(planned: list[SingleCall]) -> list[list[SingleCall]]:
    """Divide calls among clients if they are made one after the other; those of one program stay
    together, and so do those that are made later."""
    if any(_needs_the_others(call) for call in planned):
        return [planned]
    shared: list[list[SingleCall]] = [[] for _ in range(_CLIENTS)]
    alone: list[list[SingleCall]] = []
    later: list[SingleCall] = []
    client_of: dict[str, int] = {}
    for call in planned:
        if call.part.together:
            alone.append([call])
        elif call.part.at:
            later.append(call)
        else:
            program = call.ask.instance or call.ask.code
            client = client_of.setdefault(program, len(client_of) % _CLIENTS)
            shared[client].append(call)
    return [calls for calls in [*shared, later] if calls] + alone


def _needs_the_others(call: SingleCall) -> bool:
    """Does it matter at what moment a call is made, or what was called before?"""
    part = call.part
    at_a_moment = part.at > 0 and part.together
    return at_a_moment or part.depends or part.among > 1 or part.cancel is not None


def disturbed_singly(planned: list[SingleCall], *, has_events: bool) -> list[list[SingleCall]]:
    """Divide into one part per call that meets a fault or an event, whatever the programs that are
    sent in it."""
    parts = []
    for call in planned:
        rules = tuple(_of_any_call(rule) for rule in call.faults)
        if rules or has_events:
            programs = {"": tuple(next(iter(call.programs.values()), ()))}
            parts.append([replace(call, faults=rules, programs=programs)])
    return parts


def _of_any_call(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rule of faults without the call that it is for."""
    return {key: value for key, value in rule.items() if key != "call"}
