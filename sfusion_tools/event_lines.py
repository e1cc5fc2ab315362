"""The lines of an event log: what is written about one call, by clients, fakes and proxies alike.

A line must cost a few microseconds, and formatting numbers with ``%`` is the fastest way there is.
"""

from __future__ import annotations

from json.encoder import encode_basestring_ascii

from sfusion_tools.outcome import Outcome

VERSION = 1
LINE_OPENING = b'{"event_log":'
"""How every line begins, of any version."""

quoted = encode_basestring_ascii
"""Returns a text as JSON."""

_CALL = '%s,"call":%s,"began":%.6f,"seconds":%.6f,"outcome":%s%s,"attempts":[%s]}\n'
_ATTEMPT = '{"after":%.6f,"seconds":%.6f,"waited":%.6f,"sandbox":%s,"outcome":%s,"status":%s,"sent":%d,"received":%d%s}'
_OUTCOMES: dict[str | None, str] = {None: "null", **{outcome.value: f'"{outcome.value}"' for outcome in Outcome}}
_RAN, _ASKED = ',"run_seconds":%.6f', ',"retry_after":%.6g'


def line_start(source: str, worker: str) -> str:
    """Return the beginning of every line that one process writes."""
    return f'{{"event_log":{VERSION},"source":{quoted(source)},"worker":{quoted(worker)}'


def call_line(
    start: str, call: str, began: float, seconds: float, outcome: str | None, attempts: str = "", more: str = ""
) -> str:
    """Return the line of a call that began at this unix time. Hashing a plain ``outcome`` is faster than a member's.

    ``attempts`` are joined by commas; ``more`` is further JSON that begins with a comma.
    """
    return _CALL % (start, quoted(call), began, seconds, _OUTCOMES[outcome], more, attempts)


def attempt_json(
    after: float,
    seconds: float,
    waited: float,
    sandbox: str,
    outcome: str | None,
    status: int | None,
    sent: int,
    received: int,
    run_seconds: float | None,
    retry_after: float | None,
    fault: str | None = None,
) -> str:
    """Return an attempt that began ``after`` seconds of its call."""
    more = "" if run_seconds is None else _RAN % run_seconds
    if retry_after is not None:
        more += _ASKED % retry_after
    if fault is not None:
        more += f',"fault":{quoted(fault)}'
    return _ATTEMPT % (
        after,
        seconds,
        waited,
        quoted(sandbox),
        _OUTCOMES[outcome],
        status or "null",
        sent,
        received,
        more,
    )
