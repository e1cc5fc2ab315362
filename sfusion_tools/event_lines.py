"""The lines of an event log: what is written about one call, by clients, fakes and proxies alike.

A line must cost a few microseconds. ``%`` of bytes is the fastest way to format numbers, what many
lines have in common is formatted once, and a usual line is a single ``%``. The order of the keys
follows from that.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from json.encoder import encode_basestring_ascii

from sfusion_tools.outcome import Outcome
from sfusion_tools.record import Attempt

VERSION = 1
LINE_OPENING = b'{"event_log":'
"""How every line begins, of any version."""

quoted = encode_basestring_ascii
"""Returns a text as JSON."""

_CALL = b'%b%06d,"call":"%b","seconds":%.6f,"outcome":%b'
_ATTEMPT = b',"after":%.6f,"seconds":%.6f,"waited":%b,"sent":%d,"received":%d'
_RAN = b',"run_seconds":%.6f'
_ASKED = b',"retry_after":%.6g'
_FAULT = b',"fault":%b'
_ANY_CALL = _CALL + b'%b,"attempts":[%b]}\n'
_ANY_ATTEMPT = b"%b" + _ATTEMPT + b"%b}"
_USUAL = _CALL + _ATTEMPT + _RAN + b"}]}\n"
"""A call of one attempt of which the sandbox reports how long the program ran, and nothing else."""
_OUTCOMES = {None: b"null"} | {outcome.value: quoted(outcome).encode() for outcome in Outcome}


def call_line(
    source: str,
    worker: str,
    call: str,
    began: float,
    seconds: float,
    outcome: Outcome | None,
    attempts: Sequence[Attempt] = (),
    more: str = "",
    trajectory: str | None = None,
    group: str | None = None,
) -> bytes:
    """Return the line of a call that began at this unix time.

    ``more`` is further JSON that begins with a comma.
    """
    name = _id(call)
    # The keys stand within the place of the id, so that a usual line stays a single %.
    if trajectory is not None:
        name += b'","trajectory":"' + _id(trajectory)
    if group is not None:
        name += b'","group":"' + _id(group)
    whole = began // 1.0  # an int would have to be made, hashed and converted back
    start = _start(source, worker, whole)
    micros = (began - whole) * 1e6
    if len(attempts) == 1 and not more and outcome is not None:
        only = attempts[0]
        ran = only.execution_time
        ended = only.outcome
        waited = only.waited
        is_usual = only.retry_after is None and only.fault is None
        if ran is not None and ended is not None and is_usual:
            return _USUAL % (
                start,
                micros,
                name,
                seconds,
                # Hashing a plain text is faster than hashing a member.
                _outcome_and_answer(outcome._value_, only.endpoint, ended._value_, only.status),
                only.after,
                only.seconds,
                b"%.6f" % waited if waited else b"0",
                only.sent,
                only.received,
                ran,
            )
    texts = []
    for attempt in attempts:  # the closure of a comprehension would slow down usual lines too
        texts.append(_attempt(attempt))
    return _ANY_CALL % (
        start,
        micros,
        name,
        seconds,
        _OUTCOMES[outcome],
        more.encode(),
        b",".join(texts),
    )


def _id(text: str) -> bytes:
    name = text.encode("ascii", "replace")
    if name.isalnum():  # few ids need to be quoted, which is slower
        return name
    return quoted(text)[1:-1].encode()


def _attempt(attempt: Attempt) -> bytes:
    outcome = attempt.outcome
    known = b""
    if attempt.execution_time is not None:
        known += _RAN % attempt.execution_time
    if attempt.retry_after is not None:
        known += _ASKED % attempt.retry_after
    if attempt.fault is not None:
        known += _FAULT % quoted(attempt.fault).encode()
    return _ANY_ATTEMPT % (
        _answer(attempt.endpoint, None if outcome is None else outcome._value_, attempt.status),
        attempt.after,
        attempt.seconds,
        b"%.6f" % attempt.waited if attempt.waited else b"0",
        attempt.sent,
        attempt.received,
        known,
    )


@lru_cache(maxsize=256)
def _start(source: str, worker: str, second: float) -> bytes:
    if not second >= 0:  # also nan, the whole part of an infinite time
        raise ValueError(f"no call began in second {second}")
    opening = (
        f'{{"event_log":{VERSION},"source":{quoted(source)},"worker":{quoted(worker)},'
        f'"began":{second:.0f}.'
    )
    return opening.encode()


@lru_cache(maxsize=256)
def _outcome_and_answer(outcome: str, sandbox: str, ended: str, status: int | None) -> bytes:
    """Return the outcome of a call and the answer to its only attempt."""
    return b'%b,"attempts":[%b' % (_OUTCOMES[outcome], _answer(sandbox, ended, status))


@lru_cache(maxsize=256)
def _answer(sandbox: str, outcome: str | None, status: int | None) -> bytes:
    return b'{"sandbox":%b,"outcome":%b,"status":%b' % (
        quoted(sandbox).encode(),
        _OUTCOMES[outcome],
        b"null" if status is None else b"%d" % status,
    )
