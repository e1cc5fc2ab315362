"""The lines of an event log: what is written about one call, by clients, fakes and proxies alike.

Written with f-strings, because a line must cost a few microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from json.encoder import encode_basestring_ascii

VERSION = 1

quoted = encode_basestring_ascii
"""Returns a text as JSON."""


def line_start(source: str, worker: str) -> str:
    """Return the beginning of every line that one process writes."""
    return f'{{"event_log":{VERSION},"source":{quoted(source)},"worker":{quoted(worker)}'


def call_line(
    start: str, call: str, began: float, seconds: float, outcome: str, attempts: Sequence[str], more: str = ""
) -> str:
    """Return the line of a call that began at this unix time; ``more`` is further JSON that begins with a comma."""
    return (
        f'{start},"call":{quoted(call)},"began":{began:.6f},"seconds":{seconds:.6f},"outcome":"{outcome}"{more},'
        f'"attempts":[{",".join(attempts)}]}}\n'
    )


def attempt_json(
    after: float,
    seconds: float,
    waited: float,
    sandbox: str,
    outcome: str,
    status: int | None,
    sent: int,
    received: int,
    *,
    run_seconds: float | None = None,
    retry_after: float | None = None,
    fault: str | None = None,
) -> str:
    """Return an attempt that began ``after`` seconds of its call."""
    more = "" if run_seconds is None else f',"run_seconds":{run_seconds:.6f}'
    if retry_after is not None:
        more += f',"retry_after":{retry_after:.6g}'
    if fault is not None:
        more += f',"fault":{quoted(fault)}'
    return (
        f'{{"after":{after:.6f},"seconds":{seconds:.6f},"waited":{waited:.6f},"sandbox":{quoted(sandbox)},'
        f'"outcome":"{outcome}","status":{status or "null"},"sent":{sent},"received":{received}{more}}}'
    )
