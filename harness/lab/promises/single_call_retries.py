"""What single calls show about attempts that cannot help, or that come too soon."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from ..single_calls.calls import CallFacts, SentRequest, SuiteFacts
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
    refused = [request for request in sent if request.status in _WRONG_REQUEST]
    if refused:
        again = any(request.at > refused[0].at for request in sent)
        yield unless(not again, "after_refusal", call, status=refused[0].status)


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
    """Find calls that raise at a date in Retry-After what no other refusal makes them raise."""
    refused = [
        call
        for call in facts
        if call.returned is not None
        and call.requests
        and call.requests[-1].status in (429, 503)
        and not call.ask.tests
    ]
    usual = {_kind(call) for call in refused if not call.requests[-1].dated}
    for call in refused:
        if call.requests[-1].dated and usual:
            raised = call.returned.raised if call.returned is not None else None
            fine = raised is None or _kind(call) in usual
            yield unless(fine, "by_a_date", call, what=str(raised)[:160])


def _kind(call: CallFacts) -> str:
    """Return the type of what a call raised; empty if it returned."""
    raised = call.returned.raised if call.returned is not None else None
    return (raised or "").partition(":")[0]
