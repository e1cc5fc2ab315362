"""What single calls show about requests: what was sent, how often, and when."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from ..facts.sent import CONTENT_TYPE, WIRE_DEFAULTS, SentDifference, field_differences
from ..single_calls.calls import FAIR, CallFacts, RunFacts, SentRequest
from ..single_calls.suite import SuiteFacts
from .findings import Findings, Wrong, shown, unless, wrong, wrong_run

_HAMMERING = 2
"""How often a call may be refused and sent again without a pause. Chosen."""
_AT_ONCE = 0.01
"""Seconds of the shortest pause. Chosen."""
_UNSEEN = 1.0
"""Seconds of a pause that may have been made by means that a trial does not see, such as a `sleep`
that was imported by name. Chosen: such a pause is not shortened, and 0.1 s long at least."""
_ROUNDED = 1.0
"""Seconds by which a deadline may be missed: aiohttp ends timeouts of more than five on a whole
one."""
_DATE = 1.0
"""Seconds by which a date of HTTP may be missed: it has no fractions."""
_MICROSECOND = 1e-6
"""To this the times of journals are rounded."""
_MUCH = 2
"""How many times its timeout a client may wait for an answer, with some seconds more for the way.
Chosen."""
_LONG = 80
"""Characters of a text of which only the place is shown where it differs."""


def is_late(call: CallFacts, request: SentRequest) -> bool:
    """Did a request come after the end of its call? That it came at all is what is wrong with
    it."""
    ended = call.ended_at
    return ended is not None and request.at > ended + call.run.tolerance


# -- sent_as_asked --


def find_differences(facts: SuiteFacts) -> Findings:
    """Find requests that are not as they were asked for, and those that nobody asked for."""
    for call in facts:
        asked = call.asked_fields()
        for number, request in enumerate(call.requests, 1):
            if not is_late(call, request):
                yield from _request_differences(call, request, number, asked)
        if "timeout_unsent" in call.takes:
            yield _vain_timeout(call)
    for run, request in facts.unasked:
        yield _unasked(facts.of(run), request)
    for run in facts.runs:
        for event in run.other_requests:
            if event["method"] == "POST":
                route = {"method": event["method"], "path": event["path"]}
                yield wrong_run("route", [event], call=run.name, **route)


def _vain_timeout(call: CallFacts) -> Wrong | None:
    """Find a timeout that is neither sent nor that of the connection: the client waits for much
    longer for a sandbox that never answers."""
    asked = call.ask.timeout or call.run.settings.default_timeout
    waited_once = len(call.requests) == 1 and "hang" in call.requests[0].faults
    if not asked or not waited_once or call.ended_at is None or call.lagged:
        return None
    sent = call.requests[0].fields.get("run_timeout", WIRE_DEFAULTS["run_timeout"])
    waited = call.ended_at - call.requests[0].at
    about = {"asked": asked, "sent": float(sent), "waited": waited}
    is_soon = waited <= _MUCH * asked + call.run.tolerance
    fine = call.cancelled or is_soon or float(sent) == asked
    return unless(fine, "limits_nothing", call, field="timeout", **about)


def _request_differences(
    call: CallFacts, request: SentRequest, number: int, asked: dict[str, Any]
) -> Findings:
    if not request.fields:
        body = shown(request.body, 120)
        yield wrong("unreadable", call, attempt=number, field="body", body=body)
        return
    found: list[Wrong | None] = [
        *_field_findings(call, request, number, asked),
        *_header_findings(call, request, number),
        *_program_findings(call, request, number),
    ]
    if request.complaint:
        said = {"status": request.status, "complaint": shown(request.complaint, 160)}
        found.append(wrong("rejected", call, attempt=number, field="", **said))
    yield from found or [None]


def _field_findings(
    call: CallFacts, request: SentRequest, number: int, asked: dict[str, Any]
) -> Iterator[Wrong]:
    for difference in field_differences(asked, request.fields):
        kind = "field" if difference.field in request.fields else "not_sent"
        found, expected = _apart(difference)
        facts = {"field": difference.field, "found": found, "expected": expected}
        yield wrong(kind, call, attempt=number, **facts)


def _header_findings(call: CallFacts, request: SentRequest, number: int) -> Iterator[Wrong]:
    for name in request.lacks:
        if name == CONTENT_TYPE:
            found = shown(request.arrived.get("content_type"))
            about = {"field": name, "found": found, "expected": "application/json"}
            yield wrong("field", call, attempt=number, **about)
        elif "headers" in call.takes:
            yield wrong("header", call, attempt=number, field=name)


def _program_findings(call: CallFacts, request: SentRequest, number: int) -> Iterator[Wrong]:
    """Find requests with the program, or the standard input, of no call."""
    sent = request.fields.get("code", "")
    if "code" not in call.takes and call.ask.code.strip() not in sent:
        other = {"found": "another program", "expected": "one with that of the call"}
        yield wrong("field", call, attempt=number, field="code", **other)
    if call.ask.tests and not request.test:
        values = {
            "found": shown(request.fields.get("stdin")),
            "expected": "the input of one of its tests",
        }
        yield wrong("field", call, attempt=number, field="stdin", **values)


def _unasked(calls: list[CallFacts], request: SentRequest) -> Wrong:
    for call in calls:
        under_way = call.asked_at <= request.at <= (call.ended_at or 0.0)
        if call.end == "bad_arguments" and under_way:
            return wrong("refused", call, arguments=shown(call.ask.arguments))
    return wrong_run("unasked", request.events, body=shown(request.body))


def _apart(difference: SentDifference) -> tuple[str, str]:
    """Show two values; of long texts the place where they begin to differ."""
    found = difference.found
    expected = difference.expected
    if not (isinstance(found, str) and isinstance(expected, str)):
        return shown(found), shown(expected)
    if max(len(found), len(expected)) < _LONG:
        return shown(found), shown(expected)
    start = max(0, _first_difference(found, expected) - 30)
    return _excerpt(found, start), _excerpt(expected, start)


def _first_difference(left: str, right: str) -> int:
    """Return the first place at which two texts differ."""
    for place, (mine, yours) in enumerate(zip(left, right, strict=False)):
        if mine != yours:
            return place
    return min(len(left), len(right))


def _excerpt(text: str, start: int) -> str:
    before = "… " if start > 0 else ""
    return f"{before}{shown(text[start : start + 60])}"


# -- no_duplicate_execution --


def find_duplicates(facts: SuiteFacts) -> Findings:
    """Find calls that were sent again without need, or after their end."""
    for call in facts:
        scores = bool(call.ask.tests)
        for sent in call.attempts:
            if scores and not sent[0].test:
                continue  # it is not known for which of its tests
            yield _repetition(call, sent, None if scores else call.answered)


def _repetition(
    call: CallFacts, sent: list[SentRequest], usable: SentRequest | None
) -> Wrong | None:
    if any(is_late(call, request) for request in sent):
        return wrong("late", call)
    pairs = itertools.pairwise(sent)
    if len(sent) > 1 and not any(_had_failed(call, *pair) for pair in pairs):
        return wrong("again", call, times=len(sent))
    if usable is not None and sent[-1].at > usable.at:
        return wrong("after_result", call)
    return None


def _had_failed(call: CallFacts, request: SentRequest, following: SentRequest) -> bool:
    """Did an attempt fail, as far as the client can know: by a fault, a sandbox that was down, or
    one that was late?"""
    late = call.run.on_wall and following.at - request.at >= call.due + FAIR
    return bool(request.faults) or request.status != 200 or late


# -- retry_after_honoured --


def find_early_returns(facts: SuiteFacts) -> Findings:
    """Find calls that came back before they were asked to, or without any pause."""
    for call in facts:
        yield from _hammering(call)
        for sent in call.attempts:
            for request, following in itertools.pairwise(sent):
                waits = request.retry_after is not None and request.ended is not None
                if waits and not is_late(call, following):
                    yield _early(call, request, following)


def _hammering(call: CallFacts) -> Findings:
    refused = [
        request
        for request in call.requests
        if request.status in (429, 503) and request.retry_after is None and not request.dated
    ]
    gaps = [after.at - before.at for before, after in itertools.pairwise(refused)]
    if len(gaps) < _HAMMERING or call.ask.tests:
        return
    if not call.run.on_wall:
        yield unless(max(gaps) > _AT_ONCE, "hammered", call, times=len(refused))
    elif call.returned is not None and call.returned.paused is not None:
        # Time alone does not tell: requests take some, on a busy machine more.
        pauses = call.returned.paused or max(gaps) > _UNSEEN
        yield unless(pauses, "hammered", call, times=len(refused))


def _early(call: CallFacts, request: SentRequest, following: SentRequest) -> Wrong | None:
    assert request.ended is not None
    assert request.retry_after is not None
    early = request.ended + request.retry_after - following.at
    facts = {"early": early, "status": request.status, "asked": request.retry_after}
    if request.dated:
        return unless(early <= _DATE + call.run.tolerance, "early_date", call, **facts)
    return unless(early <= _MICROSECOND + call.run.tolerance, "early", call, **facts)


# -- deadline_honoured --


def find_late_ends(facts: SuiteFacts) -> Findings:
    """Find calls that did not end, or not within the deadline."""
    for call in facts:
        if call.ended_at is not None:
            yield _took_too_long(call)
        elif call.endless or not _was_asked_to_wait(call):
            yield _never_ended(call)
    for run in facts.runs:
        if run.broken_off and all(call.ended_at is not None for call in facts.of(run)):
            evidence = run.journal.events[-1:]
            yield wrong_run("never", evidence, call=run.name, after=run.horizon, why="")


def still_asked_to_wait(facts: SuiteFacts) -> list[CallFacts]:
    """Return the calls that had not ended, only because they were asked to wait for longer."""
    unended = [call for call in facts if call.ended_at is None and not call.endless]
    return [call for call in unended if _was_asked_to_wait(call)]


def _never_ended(call: CallFacts) -> Wrong:
    """Return that a call had not ended, and what it had sent."""
    sent = len(call.requests)
    after = call.run.horizon - call.planned.part.at
    why = "" if sent else ", and had sent nothing"
    if call.endless:
        after = call.requests[-1].at - call.asked_at
        why = f", and was cut off because it was sent {sent}x"
    elif sent > 1:
        why = f", and was sent {sent}x"
    return wrong("never", call, after=after, why=why)


def _was_asked_to_wait(call: CallFacts) -> bool:
    """Does a call that has not ended wait as long as it was asked to?"""
    if not call.requests or not call.requests[-1].retry_after:
        return False
    last = call.requests[-1]
    return (last.ended or 0.0) + (last.retry_after or 0.0) > call.run.ended


def _took_too_long(call: CallFacts) -> Wrong | None:
    deadline = call.run.settings.deadline if "deadline" in call.takes else None
    if deadline is None or call.ended_at is None:
        return None
    took = call.ended_at - call.asked_at
    slack = call.run.tolerance * (1 + len(call.requests)) + _ROUNDED
    return unless(took <= deadline * 1.001 + slack, "late", call, took=took, allowed=deadline)


# -- how many are in flight --

Interval = tuple[float, float]


def intervals(calls: list[CallFacts]) -> list[Interval]:
    """Return when each request was under way, as its client sees it: not after the call, nor into
    the next attempt."""
    found = []
    for call in calls:
        for sent in call.attempts:
            for number, request in enumerate(sent):
                ends = [end for end in (request.ended, call.ended_at) if end is not None]
                ends += [following.at for following in sent[number + 1 : number + 2]]
                found.append((request.at, min(ends, default=request.at)))
    return found


def stretches(under_way: list[Interval]) -> Iterator[tuple[float, float, int]]:
    """Yield (from, to, how many are under way) for each stretch of time."""
    times = sorted({time for interval in under_way for time in interval})
    for start, end in itertools.pairwise(times):
        count = sum(1 for begin, over in under_way if begin <= start and over >= end)
        yield start, end, count


def find_crowds(facts: SuiteFacts, limit: int | None) -> Findings:
    """Find stretches of time with more requests in flight than the limit."""
    for run in facts.runs:
        most = limit or run.settings.rate_limit
        calls = facts.of(run)
        for start, end, flying in stretches(intervals(calls)):
            short = end - start <= _MICROSECOND + run.tolerance
            if most is None or run.divided or flying <= most or short:
                yield None
            else:
                yield _crowd(run, start, flying, most)


def _crowd(run: RunFacts, start: float, flying: int, limit: int) -> Wrong:
    there = [request for request in run.requests if request.at <= start]
    evidence = [request.arrived for request in there[-flying:]]
    facts = {"at": start - run.began, "flying": flying, "limit": limit, "run": run.name}
    return wrong_run("over", evidence, **facts)
