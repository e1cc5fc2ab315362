"""Checks of the wire: what was sent, how often, when, and to which sandbox."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

from ..lab.facts.sent import field_differences, header_differences
from .calls import FAIR, CallFacts, TrialFacts
from .checks import Findings, Wrong, check, played_ends, shown, unless
from .record import SentRequest

_MOMENT = 0.05
"""Seconds for which a permit may lie idle, beside the tolerance of the stage."""
_HAMMERING, _AT_ONCE = 2, 0.01
"""How often a call may be refused and sent again with no pause of so many seconds."""
_ROUNDED = 1.0
"""Seconds by which a deadline may be missed: aiohttp ends timeouts of more than five on a whole
one."""
_OUTAGE = 3.0
"""Seconds after which calls must avoid a sandbox that is down."""


@check(
    "field",
    field="{call}: {field} was sent as {found} instead of {expected} (attempt {attempt})",
    not_sent="{call}: {field} was not sent, but {expected} was asked for (attempt {attempt})",
    unreadable="{call}: the body that came is not a JSON object: {body} (attempt {attempt})",
    unasked="a request came that no call of the plan asked for, with the body {body}",
    rejected=(
        "{call}: the sandbox refused the request with {status}: {complaint} (attempt {attempt})"
    ),
    refused="{call}: arguments {arguments} were sent to the sandbox as a program",
    route="{call}: sent to {method} {path} instead of POST /run_code",
    unseen="no request came",
)
def sent_as_asked(facts: TrialFacts) -> Findings:
    """Every request carries the exact code, fields, headers and content type."""
    for call in facts:
        asked = call.asked_fields()
        headers = call.scene.settings.headers if "headers" in facts.takes else {}
        for number, request in enumerate(call.requests, 1):
            if _late(facts, call, request):
                continue
            if not request.fields:
                yield Wrong("unreadable", {"call": call.name, "attempt": number, "field": "body",
                                           "body": shown(request.body, 120)})  # fmt: skip
                continue
            wrong = [
                *field_differences(asked, request.fields),
                *header_differences(headers, request.headers),
            ]
            about = {"call": call.name, "attempt": number}
            if (
                "code" not in facts.takes
                and call.planned.ask.code.strip() not in request.fields.get("code", "")
            ):
                other = {"found": "another program", "expected": "one with that of the call"}
                yield Wrong("field", {**about, "field": "code", **other})
            for one in wrong:
                sent = one.field.startswith(("header", "content")) or one.field in request.fields
                found, expected = _apart(one.found, one.expected)
                values = {"found": found, "expected": expected}
                yield Wrong(
                    "field" if sent else "not_sent", {**about, "field": one.field, **values}
                )
            if call.planned.ask.tests and not request.test:
                values = {
                    "found": shown(request.fields.get("stdin")),
                    "expected": "the input of one of its tests",
                }
                yield Wrong("field", {**about, "field": "stdin", **values})
            if request.complaint:
                said = {"status": request.status, "complaint": shown(request.complaint, 160)}
                yield Wrong("rejected", {**about, "field": "", **said})
            elif not wrong:
                yield None
    for name, request in facts.unasked:
        for call in facts.of(name):
            if call.end == "bad_arguments" and call.played.asked_at <= request.at <= (
                call.played.ended_at or 0.0
            ):
                yield Wrong(
                    "refused", {"call": call.name, "arguments": shown(call.planned.ask.arguments)}
                )
                break
        else:
            yield Wrong("unasked", {"body": shown(request.body)})
    for played in facts.record.scenes.values():
        for request in played.other_requests:
            if request.method == "POST":
                yield Wrong(
                    "route",
                    {"call": played.scene.name, "method": request.method, "path": request.path},
                )


def _late(facts: TrialFacts, call: CallFacts, request: SentRequest) -> bool:
    """Did a request come after the end of its call? That it came at all is what is wrong with
    it."""
    ended = call.played.ended_at
    return ended is not None and request.at > ended + facts.tolerance


def _apart(found: Any, expected: Any) -> tuple[str, str]:
    """Show two values; of long texts the place where they begin to differ."""
    if (
        not (isinstance(found, str) and isinstance(expected, str))
        or max(len(found), len(expected)) < 80
    ):
        return shown(found), shown(expected)
    same = next(
        (at for at, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), None
    )
    start = max(0, (min(len(found), len(expected)) if same is None else same) - 30)
    return tuple(
        f"{'… ' * (start > 0)}{shown(one[start : start + 60])}" for one in (found, expected)
    )  # type: ignore[return-value]


@check(
    "kind",
    again="{call}: sent {times:time} although no attempt had failed",
    late="{call}: a request came after the call had ended",
    after_result="{call}: sent again although its result had come",
    unseen="no request came",
)
def sent_once(facts: TrialFacts) -> Findings:
    """A call is sent again only after an attempt failed, and never after the call has ended."""
    for call in facts:
        scores = bool(call.planned.ask.tests)
        for sent in call.attempts:
            if scores and not sent[0].test:
                continue  # it is not known for which of its tests
            last, usable = sent[-1], None if scores else call.answered
            if any(_late(facts, call, one) for one in sent):
                yield Wrong("late", {"call": call.name})
            elif len(sent) > 1 and not any(
                itertools.starmap(partial(_failed, call), itertools.pairwise(sent))
            ):
                yield Wrong("again", {"call": call.name, "times": len(sent)})
            elif usable is not None and last.at > usable.at:
                yield Wrong("after_result", {"call": call.name})
            else:
                yield None


def _failed(call: CallFacts, request: SentRequest, following: SentRequest) -> bool:
    """Did an attempt fail, as far as the client can know: by a fault, a sandbox that was down,
    or one that was late?"""
    late = call.on_wall and following.at - request.at >= call.due + FAIR
    return bool(request.faults) or request.status != 200 or late


@check(
    "end",
    unsent="{call}: no request was sent, though the sandbox was there (expected: {end}){raised}",
    unread="{call}: its answer came in pieces, and was not read to its end (expected: {end})",
    given_up=(
        "{call}: given up after {after:.2f} s, though its program would have answered "
        "after {needed:.2f} s"
    ),
    failed="{call}: the program ended and was answered after a fault, but was sent no further",
    unseen="no program ended within its time limit; the scene `programs` plays some",
)
def programs_waited_for(facts: TrialFacts) -> Findings:
    """The client waits for programs that end within their time limit."""
    for call in played_ends(facts):
        if call.planned.end in ("either", "bad_arguments") or call.failed or call.planned.ask.tests:
            continue
        if call.answered is not None:
            yield None
            continue
        if not call.requests:
            raised = (
                f"; it raised {call.told.raised:.160}" if call.told and call.told.raised else ""
            )
            yield Wrong("unsent", {"call": call.name, "end": call.end, "raised": raised})
            continue
        after = (call.played.ended_at or 0.0) - call.requests[-1].at
        if call.requests[-1].faults == ("drip",) and after < call.due + FAIR:
            yield Wrong("unread", {"call": call.name, "end": call.end})
        elif not any(one.faults or one.complaint for one in call.requests):
            yield Wrong(
                "given_up", {"call": call.name, "end": call.end, "after": after, "needed": call.due}
            )


@check(
    never="{call}: had not ended after {after:.0f} s{why}",
    deadline="{call}: took {took:.2f} s, with a deadline of {deadline:g} s",
    unseen="no call was made",
)
def ends_in_time(facts: TrialFacts) -> Findings:
    """Every call ends, within its deadline if the client has one."""
    for call in facts:
        played, scene = call.played, call.scene
        if played.ended_at is None:
            last = call.requests[-1] if call.requests else None
            if (
                last is not None
                and last.retry_after
                and (last.ended or 0.0) + last.retry_after > scene.ended
            ):
                continue  # it waits as long as it was asked to
            why = "" if call.requests else ", and had sent nothing"
            yield Wrong(
                "never",
                {"call": call.name, "after": scene.scene.horizon - call.planned.at, "why": why},
            )
            continue
        deadline = scene.settings.deadline if "deadline" in facts.takes else None
        took = played.ended_at - played.asked_at
        late = facts.tolerance * (1 + len(call.requests)) + _ROUNDED
        in_time = deadline is None or took <= deadline * 1.001 + late
        yield unless(in_time, "deadline", call=call.name, took=took, deadline=deadline)
    for name, whole in facts.record.scenes.items():
        if whole.broken_off and all(call.played.ended_at is not None for call in facts.of(name)):
            yield Wrong("never", {"call": name, "after": whole.scene.horizon, "why": ""})


@check(
    early="{call}: came back {early:.2f} s too early after a {status} with Retry-After {asked:g}",
    date=(
        "{call}: came back {early:.2f} s too early after a {status} with a date "
        "{asked:.2f} s ahead as Retry-After"
    ),
    hammered="{call}: refused {times:time} without Retry-After, and sent again at once each time",
    unseen=(
        "no call was sent again after a 429 or 503 with Retry-After, as of a client "
        "with one attempt"
    ),
)
def retry_after_respected(facts: TrialFacts) -> Findings:
    """After a 429 or 503 the client waits as long as Retry-After asks, in seconds or as a date;
    else it pauses."""
    for call in facts:
        refused = [
            one
            for one in call.requests
            if one.status in (429, 503) and one.retry_after is None and not one.dated
        ]
        gaps = [after.at - one.at for one, after in itertools.pairwise(refused)]
        if len(gaps) >= _HAMMERING and not facts.on_wall and not call.planned.ask.tests:
            yield unless(max(gaps) > _AT_ONCE, "hammered", call=call.name, times=len(refused))
        for one, following in itertools.chain.from_iterable(map(itertools.pairwise, call.attempts)):
            if (
                one.retry_after is not None
                and one.ended is not None
                and not _late(facts, call, following)
            ):
                early = one.ended + one.retry_after - following.at
                about = {
                    "call": call.name,
                    "early": early,
                    "status": one.status,
                    "asked": one.retry_after,
                }
                kind, unit = ("date", 1.0) if one.dated else ("early", 1e-6)
                yield unless(early <= unit + facts.tolerance, kind, **about)


# -- the limit --


def _intervals(calls: list[CallFacts]) -> list[tuple[float, float, str]]:
    """Return when each request was under way, as its client sees it: not after the call, nor
    into the next attempt."""
    found = []
    for call in calls:
        for sent in call.attempts:
            for number, one in enumerate(sent):
                ends = [end for end in (one.ended, call.played.ended_at) if end is not None]
                ends += [following.at for following in sent[number + 1 : number + 2]]
                found.append((one.at, min(ends, default=one.at), call.name))
    return found


def _steps(intervals: list[tuple[float, float, str]]) -> Iterator[tuple[float, float, int]]:
    """Yield (from, to, how many are under way) for each stretch of time."""
    times = sorted({time for start, end, _ in intervals for time in (start, end)})
    for start, end in itertools.pairwise(times):
        yield start, end, sum(1 for one in intervals if one[0] <= start and one[1] >= end)


@check(
    needs=("rate_limit",),
    over="{flying:request} in flight at {at:.2f} s of scene {scene}, with a limit of {limit}",
    unseen="no request came",
)
def limit_kept(facts: TrialFacts) -> Findings:
    """Requests in flight never exceed the limit."""
    for name, calls in facts.scenes.items():
        scene = facts.record.scenes[name]
        limit = None if scene.divided else scene.settings.rate_limit
        for start, end, flying in _steps(_intervals(calls)):
            kept = limit is None or flying <= limit or end - start <= 1e-6 + facts.tolerance
            yield unless(
                kept, "over", scene=name, limit=limit, flying=flying, at=start - scene.began
            )


def _left_alone(at: float, requests: list[SentRequest], tolerance: float) -> bool:
    """Was a failure the last thing that happened: has no call been sent since, so that the
    sandbox gets a rest?"""
    failed = [one for one in requests if one.faults or one.status != 200]
    ends = [one.ended for one in failed if one.ended is not None and one.ended <= at]
    return bool(ends) and not any(max(ends) + tolerance < one.at <= at for one in requests)


@check(
    needs=("rate_limit",),
    idle=(
        "{call} waited {waited:.2f} s of scene {scene} although only {flying} of {limit} "
        "requests were in flight"
    ),
    unseen="no call waited for a permit; the scenes `limit` and `backing_off` let some wait",
)
def limit_used(facts: TrialFacts) -> Findings:
    """While calls wait, every permit is in use; a call that backs off holds no permit."""
    for name, calls in facts.scenes.items():
        scene = facts.record.scenes[name]
        limit = scene.settings.rate_limit
        if limit is None or scene.divided or any(call.scene.scene.sandboxes > 1 for call in calls):
            continue
        intervals = _intervals(calls)
        steps = list(
            _steps(
                [*intervals, *((call.played.asked_at, call.played.asked_at, "") for call in calls)]
            )
        )
        steps = [
            step for step in steps if not _left_alone(step[0], scene.requests, facts.tolerance)
        ]
        for call in calls:
            if not call.requests or call.planned.end == "not_run" or call.played.cancelled:
                continue
            asked, first = call.played.asked_at, call.requests[0].at
            idle = [
                (start, end, flying)
                for start, end, flying in steps
                if start >= asked
                and end <= first
                and flying < limit
                and end - start > facts.tolerance
            ]
            waited = sum(end - start for start, end, _ in idle)
            if waited > _MOMENT * call.scene.settings.scale:
                about = {"call": call.name, "scene": name, "limit": limit, "flying": idle[0][2]}
                yield Wrong("idle", {**about, "waited": waited})
            elif first - asked > _MOMENT:
                yield None


@check(
    needs=("rate_limit", "concurrent"),
    overtaken="{call} was asked for before {other}, but sent after it",
    unseen="no calls waited together; the scene `limit` lets some wait",
)
def sent_in_order(facts: TrialFacts) -> Findings:
    """Waiting calls are sent in the order in which they were made."""
    calls = [call for call in facts.of("limit") if call.requests]
    for one, other in itertools.combinations(calls, 2):
        if other.played.asked_at - one.played.asked_at <= facts.tolerance:
            continue
        in_order = one.requests[0].at <= other.requests[0].at + facts.tolerance
        yield unless(in_order, "overtaken", call=one.name, other=other.name)


# -- several sandboxes --


@check(
    "kind",
    needs=("urls", "concurrent"),
    unused="sandbox {number} of 2 never received a request",
    outage="{call}: failed while one of two sandboxes was down, {after:.0f} s after it went",
    not_recovered="sandbox 1 received no request after it had come back, for {seconds:.0f} s",
    unseen="the scene `sandboxes` was not played",
)
def sandboxes_used(facts: TrialFacts) -> Findings:
    """All sandboxes are used, if only while another is down, which soon fails no more calls and
    is used again later."""
    calls = facts.of("sandboxes")
    if not calls:
        return
    scene = facts.record.scenes["sandboxes"]
    crash, restart = (scene.began + event.at for event in scene.scene.events)
    requests = [one for call in calls for one in call.requests]
    for number in range(2):
        yield unless(any(one.sandbox == number for one in requests), "unused", number=number + 1)
    if any(one.sandbox == 0 and one.at < crash for one in requests):
        back = any(one.sandbox == 0 and one.at >= restart for one in requests)
        yield unless(back, "not_recovered", seconds=scene.ended - restart)
    if not any(len(call.requests) > 1 for call in facts.of("failures")):
        return  # it makes one attempt only
    for call in calls:
        after = call.played.asked_at - crash
        if _OUTAGE * scene.settings.scale + facts.tolerance < after < restart - crash:
            yield unless(call.answered, "outage", call=call.name, after=after)
