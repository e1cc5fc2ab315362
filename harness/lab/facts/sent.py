"""What was sent against what was asked, field by field as the server reads it."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..client import Settings, TrialAsk

WIRE_DEFAULTS: Mapping[str, Any] = {
    "language": "python",
    "stdin": None,
    "files": {},
    "compile_timeout": 10.0,
    "run_timeout": 10.0,
    "memory_limit_MB": -1,
}
"""What the real server takes for a field that a request leaves out."""
_JSON = re.compile(r"application/(?:json|[^;\s]+\+json)\s*(?:;|\Z)", re.IGNORECASE)


CONTENT_TYPE = "content type"


@dataclass(frozen=True)
class SentDifference:
    """A field of a request, or a header, that is not as it was asked for."""

    field: str
    expected: Any
    found: Any


def field_differences(
    asked: Mapping[str, Any], body: Mapping[str, Any]
) -> Iterator[SentDifference]:
    """Compare the fields of a request with those that were asked for; fields that nobody asked for
    are not judged."""
    for name, expected in asked.items():
        found = body.get(name, WIRE_DEFAULTS.get(name))
        if not _same(name, expected, found):
            yield SentDifference(name, expected, found)


def header_differences(
    asked: Mapping[str, str], headers: Mapping[str, str]
) -> Iterator[SentDifference]:
    """Compare configured headers, and the content type, with what was sent; names are compared
    without case."""
    sent = {name.lower(): value for name, value in headers.items()}
    for name, expected in asked.items():
        if sent.get(name.lower()) != expected:
            yield SentDifference(f"header {name}", expected, sent.get(name.lower()))
    if not _JSON.match(kind := sent.get("content-type", "")):
        yield SentDifference(CONTENT_TYPE, "application/json", kind or None)


def _same(name: str, expected: Any, found: Any) -> bool:
    if name in ("stdin", "files") and not expected:
        return not found
    if isinstance(expected, float | int) and isinstance(found, float | int | str):
        try:
            return math.isclose(float(found), float(expected), rel_tol=1e-6)
        except ValueError:
            return False
    return bool(expected == found)


def encoded_files(ask: TrialAsk) -> dict[str, str]:
    return {name: base64.b64encode(content).decode() for name, content in ask.files.items()}


def request_fields(ask: TrialAsk, settings: Settings) -> dict[str, Any]:
    """Return the fields of a request as the server takes them."""
    fields: dict[str, Any] = {"code": ask.code, "language": ask.language}
    fields["run_timeout"] = settings.default_timeout if ask.timeout is None else ask.timeout
    given = {
        "stdin": ask.stdin,
        "files": encoded_files(ask) or None,
        "compile_timeout": settings.compile_timeout,
        "memory_limit_MB": settings.memory_limit_mb,
    }
    return fields | {name: value for name, value in given.items() if value is not None}
