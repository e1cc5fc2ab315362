"""Checks of what a client keeps, leaves behind and gives away."""

from __future__ import annotations

from sfusion.harness.trial.calls import TrialFacts
from sfusion.harness.trial.checks import Findings, Wrong, check, shown, unless

_FOR_GOOD = 2
"""Sessions, and tasks of one name, that may outlive a client, such as one that a limiter of the process keeps."""


@check(altered="{call}: {how}")
def arguments_unchanged(facts: TrialFacts) -> Findings:
    """The client does not modify its arguments."""
    if "arguments" in facts.takes:
        for call in facts:
            if call.told is not None:
                yield unless(not call.told.altered, "altered", call=call.name, how=shown(call.told.altered, 160))


@check(
    "kind",
    instances="after scene {scene} the client still holds {held:instance} that were released, such as {first}",
    tasks="after scene {scene} {left:task} of the client went on: {names}",
    busy="when the last call of scene {scene} had ended, {left:request} of the client were in flight",
    connections="after scene {scene} {left:connection} were open, of {most} that were needed at once",
    sessions="in scene {scene} {left:session} of aiohttp were dropped without being closed",
)
def nothing_left(facts: TrialFacts) -> Findings:
    """No instance, task, request or connection outlives the calls."""
    for name, scene in facts.record.scenes.items():
        if scene.broken_off:
            continue
        held, tasks = scene.instances_left, scene.tasks_left
        many = sorted({task for task in tasks if tasks.count(task) > _FOR_GOOD})
        most, left = max((one.in_flight for one in scene.requests), default=0), scene.connections_left
        enough = left <= max(2, most * len(scene.settings.urls))
        unclosed = scene.logged.count("Unclosed client session")  # aiohttp says so where a session is collected
        found = [
            unless(not held, "instances", scene=name, held=len(held), first=next(iter(held), "")),
            unless(not many, "tasks", scene=name, left=len(tasks), names=many),
            unless(not scene.busy, "busy", scene=name, left=scene.busy),
            unless(enough, "connections", scene=name, left=left, most=most),
            unless(unclosed <= _FOR_GOOD, "sessions", scene=name, left=unclosed),
        ]
        yield from (*filter(None, found), None)


@check(
    "kind",
    needs=("cancel",),
    swallowed="{call}: cancelled, but it returned {text}",
    goes_on="{call}: cancelled, but its request stayed in flight",
)
def cancellation_ends_a_call(facts: TrialFacts) -> Findings:
    """A cancelled call and its request end at once."""
    for call in facts:
        if not call.played.cancelled or call.played.ended_at is None:
            continue
        if call.told is not None:
            yield Wrong("swallowed", {"call": call.name, "text": shown(call.told.text or call.told.raised)})
            continue
        flying = [
            one
            for one in call.requests
            if not one.client_gone and (one.ended is None or one.ended > call.played.ended_at + facts.tolerance)
        ]
        yield unless(not flying, "goes_on", call=call.name)


@check("place", leaked="the value of header {header} is in {place}")
def secrets_kept(facts: TrialFacts) -> Findings:
    """The values of configured headers never appear in a text, exception or log line."""
    if "headers" not in facts.takes:
        return
    for name, scene in facts.record.scenes.items():
        for header, value in scene.settings.headers.items():
            secret = value.split()[-1]
            told = [call.told for call in facts.of(name) if call.told is not None]
            places = [("a log line", scene.logged), ("what it prints", scene.printed)]
            places += [("a text", one.text) for one in told] + [("an exception", str(one.raised)) for one in told]
            places += [("a field", str(dict(one.fields))) for one in told]
            yield from (Wrong("leaked", {"header": header, "place": place}) for place, text in places if secret in text)
        yield None
