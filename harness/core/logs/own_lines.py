"""Lines that sfusion writes, of event logs and of journals, with checked values: anybody may have
written them.

Errors do not say where: the reader adds that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from sfusion_tools.event_lines import VERSION
from sfusion_tools.outcome import OUTCOMES, Outcome
from sfusion_tools.record import Attempt, Call, CallEvent
from sfusion_tools.sandbox.endpoints import redact

LATEST = 1e12
"""No time or duration of a log is larger."""
LONGEST = 300
"""Characters of a name."""
_ADDRESS = re.compile(r"://|[@?]")


class BadLine(ValueError):
    """Raised for a line that cannot be what it claims to be."""


def number(record: Mapping[str, Any], key: str) -> float:
    """Return a number that must be there."""
    value = record.get(key)
    if type(value) is float or type(value) is int:
        if -LATEST <= value <= LATEST:
            return float(value)
    elif isinstance(value, str):
        raise BadLine(f"{key} must be a number, found a text")
    raise BadLine(f"{key} must be a number up to {LATEST:g}, found {_shown(value)}")


def optional_number(record: Mapping[str, Any], key: str) -> float | None:
    return None if record.get(key) is None else number(record, key)


def duration(record: Mapping[str, Any], key: str) -> float:
    """Return seconds that must be there."""
    value = number(record, key)
    if value < 0:
        raise BadLine(f"{key} must not be negative, found {_shown(record[key])}")
    return value


def optional_duration(record: Mapping[str, Any], key: str) -> float | None:
    return None if record.get(key) is None else duration(record, key)


def count(record: Mapping[str, Any], key: str) -> int | None:
    value = optional_number(record, key)
    return None if value is None else int(value)


def name(record: Mapping[str, Any], key: str) -> str:
    """Return a text, cut to a sensible length; empty if there is none."""
    value = record.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadLine(f"{key} must be a text, found {_shown(value)}")
    return value if len(value) <= LONGEST else value[:LONGEST]


def sandbox_label(record: Mapping[str, Any], key: str) -> str:
    """Return the name of a sandbox; of an address only what is no secret, whoever wrote the log."""
    value = record.get(key)
    return _redacted(value) if isinstance(value, str) else name(record, key)


@lru_cache(maxsize=1000)
def _redacted(label: str) -> str:
    return (redact(label) if _ADDRESS.search(label) else label)[:LONGEST]


def outcome(record: Mapping[str, Any], key: str = "outcome") -> Outcome | None:
    value = record.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or value not in OUTCOMES:
        raise BadLine(f"{key} must be one of {', '.join(Outcome)}; found {_shown(value)}")
    return OUTCOMES[value]


def _shown(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "no finite number"
    text = repr(value) if isinstance(value, str | int | float | None) else type(value).__name__
    return text if len(text) <= 60 else f"{text[:59]}…"


def event_call(record: Mapping[str, Any]) -> Call:
    """Return the call of a line of an event log; raise BadLine."""
    if record["event_log"] != VERSION:
        raise BadLine(
            f"a line of version {record['event_log']!r}; this sfusion reads version {VERSION}"
        )
    attempts = record.get("attempts", [])
    if not isinstance(attempts, list) or not all(isinstance(attempt, dict) for attempt in attempts):
        raise BadLine("attempts must be a list of objects")
    return Call(
        name(record, "call"),
        number(record, "began"),
        optional_duration(record, "seconds"),
        source=name(record, "source") or "client",
        outcome=outcome(record),
        worker=name(record, "worker"),
        attempts=[_attempt(place, attempt) for place, attempt in enumerate(attempts, 1)],
        problem=name(record, "problem") or None,
        waited=optional_duration(record, "waited") or 0.0,
        refused=name(record, "refused"),
        read=name(record, "read") if "read" in record else "",
        trajectory=name(record, "trajectory") if "trajectory" in record else "",
        group=name(record, "group") if "group" in record else "",
    )


def _attempt(place: int, record: Mapping[str, Any]) -> Attempt:
    return Attempt(
        number=place,
        endpoint=sandbox_label(record, "sandbox"),
        outcome=outcome(record),
        status=count(record, "status"),
        waited=optional_duration(record, "waited") or 0.0,
        seconds=optional_duration(record, "seconds"),
        after=duration(record, "after"),
        sent=count(record, "sent") or 0,
        received=count(record, "received") or 0,
        retry_after=optional_duration(record, "retry_after"),
        execution_time=optional_duration(record, "run_seconds"),
        fault=name(record, "fault") or None,
    )


def checked_event(record: Mapping[str, Any]) -> CallEvent:
    """Return what an event of a journal says about a call; raise BadLine."""
    ended = outcome(record)
    asked = record.get("retry_after")
    return {
        "at": number(record, "at"),
        "source": name(record, "source"),
        "event": name(record, "event"),
        "call": name(record, "call"),
        "attempt": count(record, "attempt") or 0,
        "worker": name(record, "worker"),
        "sandbox": sandbox_label(record, "sandbox"),
        "endpoint": sandbox_label(record, "endpoint"),
        "outcome": None if ended is None else ended.value,
        "status": count(record, "status"),
        "problem": name(record, "problem"),
        "waited": _client_seconds(record, "waited"),
        "seconds": _client_seconds(record, "seconds"),
        "rule": name(record, "rule"),
        "client_gone": bool(record.get("client_gone")),
        "retry_after": asked if isinstance(asked, str | int | float) else None,
        "text": name(record, "text") if record.get("event") == "returned" else "",
    }


def _client_seconds(record: Mapping[str, Any], key: str) -> float:
    """Return how long a client waits; 0 for other sources, whose seconds may be negative: the world
    sets clocks back."""
    if record.get("source") != "client":
        return 0.0
    return optional_duration(record, key) or 0.0
