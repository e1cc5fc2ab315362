"""When to retry: pure functions, so that the same call backs off the same way every time."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

RETRIED_STATUSES = frozenset({429, 500, 502, 503, 504})
_MOST_DOUBLINGS = 60
"""Chosen: so many reach any cap. From 1024 on they would overflow a float, and orders to wait are
not bounded by a count."""


def may_have_run(status: int) -> bool:
    """True if the program may have been executed before an answer with this status.

    A server or gateway that broke (500, 502, 504, …) may have executed it; one that is too busy
    (429, 503) or refuses has not begun.
    """
    return status == 200 or (status >= 500 and status != 503)


def is_order_to_wait(status: int | None, asked: float | None) -> bool:
    """True after a 429 with Retry-After: the sandbox is full and works.

    So only time bounds such attempts, not max_attempts.
    """
    return status == 429 and asked is not None


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How many failed attempts, and how far apart.

    Jitter depends only on the call and the attempt.
    """

    max_attempts: int = 6
    base: float = 0.5
    """Seconds of the first pause, which doubles with each attempt."""
    cap: float = 8.0
    """The longest pause, unless the server asks for a longer one."""
    retry_may_have_run: bool = True
    """Also retry after an attempt that may have executed the program."""

    def pause(self, call_id: str, attempt: int, retry_after: float | None) -> float:
        """Return the seconds to wait after that attempt, never fewer than the server asked for."""
        doubled = self.base * 2.0 ** min(attempt - 1, _MOST_DOUBLINGS)
        jitter = 0.5 + 0.5 * _fraction(call_id, attempt)
        step = min(self.cap, doubled) * jitter
        return step if retry_after is None else retry_after + step


def _fraction(*keys: object) -> float:
    """Return a number from 0 to 1 that depends on the keys alone."""
    text = "\x1f".join(map(str, keys))
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64


def retry_after(headers: Mapping[str, str], wall_clock: float) -> float | None:
    """Return the seconds to wait from either form of Retry-After, None if there is none.

    A date is relative to the server's own Date header if it sends one: its clock may differ from
    ours.
    """
    value = headers.get("Retry-After", "").strip()
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        when = _date(value)
        if when is None:
            return None
        now = _date(headers.get("Date", "")) or datetime.fromtimestamp(wall_clock, UTC)
        seconds = (when - now).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
