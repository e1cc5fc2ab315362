"""What single calls show about attempts that cannot help, or that come too soon."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from ..single_calls.calls import CallFacts, SentRequest
from ..single_calls.suite import SuiteFacts
from .findings import Findings, Wrong, unless

_WRONG_REQUEST = frozenset({400, 401, 403, 405, 413, 415, 422})
"""Statuses that say that the request itself is wrong, or not allowed. A 404 is none of them: a
route may be missing while a sandbox is deployed."""
_MOST = 6
"""How often a program may be sent whose sandbox answers 500 each time. Chosen: as often as our own
client sends it; the SDK of the sandbox makes 5 attempts."""
_PAUSE = 0.01
"""Seconds of the shortest pause. Chosen."""


def find_vain_retries(facts: SuiteFacts) -> Findings:
    """Find attempts that end as the one before them did, or that come at once after a 504."""
    for call in facts:
        for sent in call.attempts:
            yield from _after_refusals(call, sent)
            yield from _after_crashes(call, sent)
            if not call.run.on_wall and len(call.run.settings.urls) == 1:
                yield from _at_once(call, sent)
    yield from _raised_by_dates(facts)


def _after_refusals(call: CallFacts, sent: list[SentRequest]) -> Iterator[Wrong | None]:
    for place, request in enumerate(sent):
        if request.status in _WRONG_REQUEST and request.ended is not None:
            # What is sent at once has the same virtual time.
            again = any(later.at >= request.ended for later in sent[place + 1 :])
            yield unless(not again, "after_refusal", call, status=request.status)
            return


def _after_crashes(call: CallFacts, sent: list[SentRequest]) -> Iterator[Wrong | None]:
    crashed = [request for request in sent if request.status == 500]
    if crashed:
        yield unless(len(crashed) <= _MOST, "after_crashes", call, times=len(crashed))


def _at_once(call: CallFacts, sent: list[SentRequest]) -> Iterator[Wrong | None]:
    for request, following in itertools.pairwise(sent):
        if request.status == 504 and request.ended is not None:
            pause = following.at - request.ended
            yield unless(pause > _PAUSE, "at_once", call, pause=pause)


def _raised_by_dates(facts: SuiteFacts) -> Findings:
    """Find calls that raise, or tell of, an exception at a date in Retry-After, and at no other
    refusal."""
    refused = [
        call
        for call in facts
        if call.returned is not None
        and call.requests
        and call.requests[-1].status in (429, 503)
        and not call.ask.tests
    ]
    usual = {name for call in refused if not _is_dated(call) for name in _errors(call)}
    knows_usual = any(not _is_dated(call) for call in refused)
    for call in refused:
        if _is_dated(call) and knows_usual:
            new = sorted(_errors(call) - usual)
            yield unless(not new, "by_a_date", call, what=_said(call)[:160])


def _is_dated(call: CallFacts) -> bool:
    return call.requests[-1].dated


_ERROR = re.compile(r"\b[A-Z]\w*(?:Error|Exception)\b")
"""The name of an exception, as languages name them."""


def _errors(call: CallFacts) -> set[str]:
    """Return the exceptions that a call raised, or that its text names."""
    returned = call.returned
    if returned is not None and returned.raised:
        return {returned.raised.partition(":")[0]}
    return set(_ERROR.findall(_said(call)))


def _said(call: CallFacts) -> str:
    """Return what a call raised or, if it did not raise, its text."""
    returned = call.returned
    return "" if returned is None else returned.raised or returned.text
