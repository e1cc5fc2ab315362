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
_RAN, _ASKED, _FAULT = b',"run_seconds":%.6f', b',"retry_after":%.6g', b',"fault":%b'
_ANY_CALL, _ANY_ATTEMPT = _CALL + b'%b,"attempts":[%b]}\n', b"%b" + _ATTEMPT + b"%b}"
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
    """Return the line of a call that began at this unix time; ``more`` is further JSON that begins
    with a comma."""
    name = _id(call)
    if (
        trajectory is not None
    ):  # the keys stand within the place of the id, so that a usual line stays a single %
        name += b'","trajectory":"' + _id(trajectory)
    if group is not None:
        name += b'","group":"' + _id(group)
    whole = began // 1.0  # an int would have to be made, hashed and converted back
    start, micros = _start(source, worker, whole), (began - whole) * 1e6
    if len(attempts) == 1 and not more and outcome is not None:
        (one,) = attempts
        ran, ended, waited = one.execution_time, one.outcome, one.waited
        if ran is not None and ended is not None and one.retry_after is None and one.fault is None:
            return _USUAL % (
                start,
                micros,
                name,
                seconds,
                # Hashing a plain text is faster than hashing a member.
                _outcome_and_answer(outcome._value_, one.endpoint, ended._value_, one.status),
                one.after,
                one.seconds,
                b"%.6f" % waited if waited else b"0",
                one.sent,
                one.received,
                ran,
            )
    texts = []
    for one in attempts:  # the closure of a comprehension would slow down usual lines too
        texts.append(_attempt(one))
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
    return (
        name if name.isalnum() else quoted(text)[1:-1].encode()
    )  # few ids need to be quoted, which is slower


def _attempt(one: Attempt) -> bytes:
    ran, asked, ended, waited = one.execution_time, one.retry_after, one.outcome, one.waited
    known = b"" if ran is None else _RAN % ran
    if asked is not None:
        known += _ASKED % asked
    if one.fault is not None:
        known += _FAULT % quoted(one.fault).encode()
    return _ANY_ATTEMPT % (
        _answer(one.endpoint, None if ended is None else ended._value_, one.status),
        one.after,
        one.seconds,
        b"%.6f" % waited if waited else b"0",
        one.sent,
        one.received,
        known,
    )


@lru_cache(maxsize=256)
def _start(source: str, worker: str, second: float) -> bytes:
    if not second >= 0:  # also nan, the whole part of an infinite time
        raise ValueError(f"no call began in second {second}")
    opening = f'{{"event_log":{VERSION},"source":{quoted(source)},"worker":{quoted(worker)},"began":{second:.0f}.'
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
