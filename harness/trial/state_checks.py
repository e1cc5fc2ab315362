"""Checks of what a client keeps, leaves behind and gives away."""

from __future__ import annotations

from .calls import CallFacts, TrialFacts
from .checks import Findings, Wrong, check, shown, unless

_FOR_GOOD = 2
"""Sessions, and tasks of one name, that may outlive a client, such as one that a limiter of the
process keeps."""


_MODIFIABLE = frozenset({"arguments", "files", "headers", "tests"})


@check(
    altered="{call}: {how}",
    unseen="no call was given what can be modified, such as arguments, headers, files or tests",
)
def arguments_unchanged(facts: TrialFacts) -> Findings:
    """The client does not modify its arguments."""
    for call in facts:
        if call.told is not None and facts.takes & _MODIFIABLE:
            yield unless(
                not call.told.altered, "altered", call=call.name, how=shown(call.told.altered, 160)
            )


@check(
    "kind",
    instances=(
        "after scene {scene} the client still holds {held:instance} that were "
        "released, such as {first}"
    ),
    tasks="after scene {scene} {left:task} of the client went on: {names}",
    busy=(
        "when the last call of scene {scene} had ended, {left:request} of the client were in flight"
    ),
    connections=(
        "after scene {scene} {left:connection} were open, of {most} that were needed at once"
    ),
    sessions="in scene {scene} {left:session} of aiohttp were dropped without being closed",
    unseen="no scene was played to its end",
)
def nothing_left(facts: TrialFacts) -> Findings:
    """No instance, task, request or connection outlives the calls."""
    for name, scene in facts.record.scenes.items():
        if scene.broken_off:
            continue
        held, tasks = scene.instances_left, scene.tasks_left
        many = sorted({task for task in tasks if tasks.count(task) > _FOR_GOOD})
        most, left = _most_at_once(facts, name), scene.connections_left
        busy = scene.busy - sum(_given_up(call) for call in facts.of(name))
        enough = left <= max(2, most * len(scene.settings.urls))
        unclosed = scene.logged.count(
            "Unclosed client session"
        )  # aiohttp says so where a session is collected
        found = [
            unless(not held, "instances", scene=name, held=len(held), first=next(iter(held), "")),
            unless(not many, "tasks", scene=name, left=len(tasks), names=many),
            unless(busy <= 0, "busy", scene=name, left=busy),
            unless(enough, "connections", scene=name, left=left, most=most),
            unless(unclosed <= _FOR_GOOD, "sessions", scene=name, left=unclosed),
        ]
        yield from (*filter(None, found), None)


def _given_up(call: CallFacts) -> bool:
    """Did a call end before its last request, whose program then goes on in the sandbox?"""
    ended, last = call.played.ended_at, call.requests[-1:]
    return (
        call.answered is None
        and ended is not None
        and any(one.ended is None or one.ended > ended for one in last)
    )


def _most_at_once(facts: TrialFacts, scene: str) -> int:
    """Return how many connections a client needed at once: one per request in flight, as it sees
    them.

    On a wall clock it may take another before it has put the last one back, but never more than it
    makes calls.
    """
    if not facts.on_wall:
        return max((one.in_flight for one in facts.record.scenes[scene].requests), default=0)
    calls = [call.played for call in facts.of(scene) for _ in call.planned.ask.tests or ("",)]
    ends = [
        (one.ended_at if one.ended_at is not None else float("inf"), one.asked_at) for one in calls
    ]
    return max((sum(begin <= at <= end for end, begin in ends) for _, at in ends), default=0)


@check(
    "kind",
    needs=("cancel",),
    swallowed="{call}: cancelled, but it returned {text}",
    goes_on="{call}: cancelled, but its request stayed in flight",
    unseen="no call was cancelled before its end; the scene `cancelled` plays some",
)
def cancellation_ends_a_call(facts: TrialFacts) -> Findings:
    """A cancelled call and its request end at once."""
    for call in facts:
        if not call.played.cancelled or call.played.ended_at is None:
            continue
        if call.told is not None:
            yield Wrong(
                "swallowed", {"call": call.name, "text": shown(call.told.text or call.told.raised)}
            )
            continue
        flying = [
            one
            for one in call.requests
            if not one.client_gone
            and (one.ended is None or one.ended > call.played.ended_at + facts.tolerance)
        ]
        yield unless(not flying, "goes_on", call=call.name)


@check(
    "place",
    needs=("headers",),
    leaked="the value of header {header} is in {place}",
    unseen="no scene was played",
)
def secrets_kept(facts: TrialFacts) -> Findings:
    """The values of configured headers never appear in a text, exception or log line."""
    for name, scene in facts.record.scenes.items():
        for header, value in scene.settings.headers.items():
            secret = value.split()[-1]
            told = [call.told for call in facts.of(name) if call.told is not None]
            places = [("a log line", scene.logged), ("what it prints", scene.printed)]
            places += [("a text", one.text) for one in told] + [
                ("an exception", str(one.raised)) for one in told
            ]
            places += [("a field", str(dict(one.fields))) for one in told]
            yield from (
                Wrong("leaked", {"header": header, "place": place})
                for place, text in places
                if secret in text
            )
        yield None
