"""Events of a scenario that never happened, or disturbed nothing, and why."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from ...core.journal import Event
from ..promises import RunEvents
from ..scenarios.events import EventPart
from ..scenarios.model import Scenario

_ROUNDED = 1e-6
"""Seconds by which a time in the journal may be early: it has six digits."""
_LASTING = ("pause", "cut_off", "wedge")
"""Kinds of events that have no effect if they last no time at all."""


def idle_events(scenario: Scenario, run: RunEvents) -> Iterator[str]:
    """Say which events had no effect, unless they may do that."""
    scale = run.began.get("time_scale", 1.0)
    first_request = _first_request(run)
    seen: set[int] = set()
    for event in sorted(scenario.events, key=lambda event: event.at):
        at = event.at * scale
        trace = _trace_of(event, at, scenario, run, seen)
        if trace is not None:
            seen.add(id(trace))
        if event.may_not_strike:
            continue
        if trace is not None:
            end = trace["at"] + _lasts(event, scenario) * scale
            why = _why_without_effect(event, end, first_request)
        elif run.foreign and (event.kind == "resize" or event.target == "limiter"):
            why = None  # another tool has no limiter of ours
        else:
            why = _why_never(event, run, at)
        if why is not None:
            yield f"event `{event.kind}: {event.target}` {why}"


def _first_request(run: RunEvents) -> float:
    """Return when the first request was sent or arrived."""
    requests = ("arrived", "attempt_started")
    times = (event["at"] for event in run.journal.events if event["event"] in requests)
    return min(times, default=0.0)


def _trace_of(
    event: EventPart, at: float, scenario: Scenario, run: RunEvents, seen: set[int]
) -> Event | None:
    """Return what an event left in the journal, other than what earlier events left."""
    for trace in run.journal.events:
        is_new = trace["at"] >= at - _ROUNDED and id(trace) not in seen
        if is_new and _shows(event, trace, scenario):
            return trace
    return None


def _why_without_effect(event: EventPart, end: float, first_request: float) -> str | None:
    """Say why an event that happened disturbed nothing; None if it may have."""
    if event.seconds == 0 and event.kind in _LASTING:
        return "changed nothing: it lasts 0 s"
    if end < first_request:
        return f"was over before the first request, which came at {first_request:.3g} s"
    return None


def _why_never(event: EventPart, run: RunEvents, at: float) -> str:
    """Say why an event did not happen."""
    if event.after is not None:
        count = 0
        for noted in run.journal.events:
            count = event.after.count(count, noted)
        if count < event.after.number:
            return f"after {event.after} never happened: the count reached only {count}"
        return f"after {event.after} never happened: its target was gone, or the load ended"
    end = end_of_load(run)
    why = f"the load ended at {end:.3g} s" if at >= end else "its target was gone"
    return f"at {event.at:g} s never happened: {why}"


def end_of_load(run: RunEvents) -> float:
    """Return when the load had ended."""
    calls = [call.endings[-1]["at"] for call in run.made if call.endings]
    rollouts = [event["at"] for event in run.of_world("rollout_ended", "broken_off")]
    return max([*calls, *rollouts], default=0.0)


def _lasts(event: EventPart, scenario: Scenario) -> float:
    """Return for how many seconds an event disturbs the run; infinity if nothing ends it."""
    if event.seconds is not None:
        return event.seconds
    if event.kind not in ("crash", "kill", "wedge"):
        return inf
    restarts = [
        other.at
        for other in scenario.events
        if other.kind == "restart" and other.target == event.target
    ]
    return min((at - event.at for at in restarts if at >= event.at), default=inf)


_LEAVES = {"kill": "died", "pause": "paused", "restart": "started"}
"""What the journal says about a limiter or a worker after an event."""


def _shows(event: EventPart, trace: Event, scenario: Scenario) -> bool:
    """Is this what the event leaves in the journal?"""
    name = str(trace["event"])
    source = str(trace["source"])
    target = str(event.target)
    if target == "limiter":
        return name == f"limiter_{_LEAVES[event.kind]}"
    is_worker = trace.get("worker") in event.workers(scenario.cluster.workers)
    is_sandbox = target == "sandbox" or trace.get("sandbox", "sandbox-1") == target
    match event.kind:
        case "kill" | "pause":
            return name == f"worker_{_LEAVES[event.kind]}" and (is_worker or target == "driver")
        case "cut_off":
            return name == "cut_off" and is_worker
        case "restart":
            return name in ("restart", "container_started")
        case "crash" | "wedge":
            return name == event.kind and is_sandbox and source == "server"
        case "clock_jump":
            return name == "clock_jumped"
        case "resize":
            return name == "resized" and bool(trace["rate_limit"] == event.target)
        case _:
            return name == "cancelled" and source == "world"
