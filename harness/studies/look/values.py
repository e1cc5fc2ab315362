"""Checked values of a JSON object that a stranger may have written. Errors have no place: the reader adds it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox.endpoints import redact

LATEST = 1e12
"""No time or duration of a log is larger."""
LONGEST = 300
"""Characters of a name."""
_ADDRESS = re.compile(r"://|[@?]")
OUTCOMES = frozenset(outcome.value for outcome in Outcome)


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


def duration(record: Mapping[str, Any], key: str) -> float | None:
    """Return seconds, None if there are none; a clock that was set back does not make them negative."""
    value = optional_number(record, key)
    return None if value is None else max(0.0, value)


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


def outcome(record: Mapping[str, Any], key: str = "outcome") -> str | None:
    value = record.get(key)
    if value is not None and (not isinstance(value, str) or value not in OUTCOMES):
        raise BadLine(f"{key} must be one of {', '.join(Outcome)}; found {_shown(value)}")
    return value


def _shown(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "no finite number"
    text = repr(value) if isinstance(value, str | int | float | None) else type(value).__name__
    return text if len(text) <= 60 else f"{text[:59]}…"
