"""Journals of calls on a wall clock: what became of calls that were left behind, and one journal of
the parts that several clients played."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ...core.journal import Event, Journal
from ..client import WARM_UP
from ..single_calls.calls import CallFacts
from ..single_calls.planned import TEST
from ..single_calls.suite import SuiteFacts


def journal_of_part(journal: Journal, name: str | None = None) -> Journal:
    """Return the journal of one client in order, without its warm-up.

    With a ``name``, the client sends a program of its own, which is followed as that of the call.
    """
    events = [event for event in journal.events if event.get("call") != WARM_UP]
    events.sort(key=lambda event: float(event["at"]))
    if name is not None:
        events = _marked(events, name)
    return Journal(journal.header, events)


_MANY = 20
"""Requests of a call that has not ended after all this time: more than any client makes that gives
up. Chosen."""
_MOST = 0.8
"""The part of its time for which a client may keep an answer to itself. Chosen: no machine is so
slow."""


def without_left_behind(
    journal: Journal, patience: float, *, may_be_stuck: bool
) -> tuple[Journal, dict[str, str]]:
    """Let calls that were left behind count as never ended if they were answered long ago, if their
    only attempt hangs, if there was none, or if there were too many. Of the others nobody knows;
    return also why, by their names.

    Without ``may_be_stuck`` only those that were answered or sent too often count: a client in
    another process keeps its own time, and may have been about to give up.
    """
    facts = SuiteFacts([journal])
    late = [call for call in facts if call.returned is None and not call.cancelled]
    unended = set[str]()
    forgotten = set[str]()
    why_forgotten: dict[str, str] = {}
    left: list[Event] = []
    for call in late:
        had_its_time = call.ended_at is not None and call.ended_at - call.asked_at >= patience
        stuck = len(call.requests) > _MANY or (may_be_stuck and _is_stuck(call))
        if had_its_time and (stuck or _is_kept_back(call, patience)):
            unended.add(call.call)
        elif not call.endless:
            forgotten.add(call.call)
            why = _why_forgotten(call, patience if had_its_time else None)
            why_forgotten[call.name] = why
            left.append(_left_behind(call, why, journal.last_time))
    if not late and not facts.runs[0].broken_off:
        return journal, {}
    horizon = patience if unended else None
    events = [
        _nothing_left(event, horizon)
        for event in journal.events
        if _is_kept(event, forgotten, unended)
    ]
    return Journal(journal.header, [*events, *left]), why_forgotten


def _is_kept(event: Event, forgotten: set[str], unended: set[str]) -> bool:
    """Is an event told of although calls were left behind?"""
    if event["event"] == "broken_off":
        return False
    call = str(event.get("call", "")).partition(TEST)[0]
    if call in forgotten:
        return False
    return not (call in unended and event["event"] in ("returned", "cancelled"))


def _left_behind(call: CallFacts, why: str, at: float) -> Event:
    """Return the event that is left of a call of which nobody knows whether it ends."""
    facts = {"name": call.name, "text": why, "requests": len(call.requests)}
    return {"at": at, "source": "world", "event": "left_behind", **facts}


def _nothing_left(event: Event, horizon: float | None) -> Event:
    """Return what a run as a whole says where calls were left behind: nothing of what is left."""
    if event["event"] == "client_left":
        return {**event, "busy": 0, "connections": 0}
    if event["event"] == "began" and horizon is not None:
        return {**event, "horizon": horizon}
    return event


def _is_stuck(call: CallFacts) -> bool:
    """Does a call hang at its only attempt, or wait for a permit that nobody holds?"""
    attempts = call.requests
    if not attempts and not call.run.has_events:
        return all(
            request.ended is not None
            and request.ended + (request.retry_after or 0.0) <= call.asked_at
            for request in call.run.requests
        )
    once = len({request.test for request in attempts}) == len(attempts)
    return once and any("hang" in request.faults for request in attempts)


def _is_kept_back(call: CallFacts, patience: float) -> bool:
    """Was a call answered in good order, and not ended for most of the time that it had?"""
    if not call.requests or call.ended_at is None or call.lag:
        return False
    last = call.requests[-1]
    if last.faults or last.status != 200 or last.ended is None:
        return False
    return call.ended_at - last.ended >= patience * _MOST


def _why_forgotten(call: CallFacts, patience: float | None) -> str:
    after = "when the time of the trial was over" if patience is None else f"after {patience:g} s"
    why = ""
    if call.requests and "drip" in call.requests[-1].faults:
        why = "; its answer trickles, and a timeout between two bytes never ends that"
    elif len(call.requests) > 1:
        why = f", sent {len(call.requests)}x"
    return f"had not ended {after}, and was left behind{why}"


def _marked(events: list[Event], call: str) -> list[Event]:
    """Follow the first program that a command sends, whatever it is, as that of the call."""
    first_body: Any = None
    wanted = set[tuple[Any, Any]]()
    """The requests that send it."""
    kept = []
    for event in events:
        if event["source"] != "server" or "attempt" not in event:
            kept.append(event)
            continue
        request = (event["call"], event["attempt"])
        if event["event"] == "arrived":
            body = event.get("fields") or event.get("body")
            if first_body is None:
                first_body = body
            if body == first_body:
                wanted.add(request)
        if request in wanted:
            kept.append({**event, "call": call})
    return kept


def merged(journals: list[Journal]) -> Journal:
    """Return one journal of several clients that shared the calls of a scenario.

    It begins and ends once, and what the clients left is added up.
    """
    events: list[Event] = []
    left: list[Event] = []
    for journal in journals:
        is_first = journal is journals[0]
        for event in journal.events:
            match event["event"]:
                case "client_left":
                    left.append(event)
                case "ended":
                    pass
                case "began" | "client_began":
                    if is_first:
                        events.append(event)
                case _:
                    events.append(event)
    events.sort(key=lambda event: float(event["at"]))
    place = next(number for number, event in enumerate(events) if event["event"] == "began")
    began = events.pop(place)
    events.insert(0, {**began, "divided": True})
    at = max(journal.last_time for journal in journals)
    if left:
        events.append({**_left_by_all(left), "at": at})
    events.append({"at": at, "source": "world", "event": "ended"})
    return Journal(journals[0].header, events)


def _left_by_all(left: list[Event]) -> Event:
    """Return one event for what all clients left."""
    instances: list[str] = []
    tasks: list[str] = []
    for event in left:
        instances += event["instances"]
        tasks += event["tasks"]
    return {
        **left[0],
        "busy": sum(event["busy"] for event in left),
        "connections": max(event["connections"] for event in left),
        "instances": instances,
        "tasks": tasks,
    }


def pace_of(journal: Journal) -> float:
    """Return the longest time that a plain call spent outside the sandbox: what this client takes
    on this machine."""
    if journal.header["scenario"] not in ("judge-programs", "judge-idle"):
        return 0.0
    facts = SuiteFacts([journal])
    sent = Counter(request.mark for request in facts.runs[0].requests)
    longest = 0.0
    for call in facts:
        if not call.returned or call.ended_at is None:
            continue
        took = call.ended_at - call.asked_at
        for request in call.requests:
            is_plain = not request.faults and sent[request.mark] == 1
            if is_plain and request.ended is not None:
                longest = max(longest, took - (request.ended - request.at))
    return longest
