"""Details that change between runs even of one server, and the marks that replace them. Pure."""

from __future__ import annotations

import re
from typing import Any

from sfusion.harness.real.probes.patterns import mask

_UNSTABLE = tuple(
    (re.compile(pattern), mark)
    for pattern, mark in (
        (r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", "<DATE>"),
        (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?", "<DATE>"),
        (r"<IPYKERNEL>\.py|\b(?<=\()\d{6,}\.py(?=, line)|<CELL>\.py", "<CELL>.py"),
        (r"<PY>(?:/(?:site|dist)-packages)+", "<PY>"),
        (r"\bin \d+\.\d+s\b", "in <SECONDS>"),
        (r"platform linux -- Python [\d.]+, pytest-[\d.]+, pluggy-[\d.]+", "<PYTEST>"),
        (r"plugins: [^\n]*\n", ""),
        # Python versions underline different parts of a line, or none.
        (r"(?m)^[ \t]*[\^~][ \t^~]*\n?", ""),
        (r"\b(?:aarch64|x86_64)-linux-gnu", "<ARCH>"),
        (r"Python 3\.\d+\.\d+", "<PYTHON>"),
        (r"Node\.js v[\d.]+", "<NODE>"),
    )
)

MEASURED = "execution_time"
"""The key of measured seconds."""
DRAWN = "traceback"
"""The key of lines that each version of Python and IPython formats differently."""


def steady(text: str) -> str:
    """Mask what differs between runs and machines."""
    text = mask(text)
    for pattern, mark in _UNSTABLE:
        text = pattern.sub(mark, text)
    return text


def is_measured(key: str, value: Any) -> bool:
    return key == MEASURED and isinstance(value, int | float) and not isinstance(value, bool)


def is_drawn(key: str, value: Any) -> bool:
    return key == DRAWN and isinstance(value, list) and bool(value)


def stable(value: Any, key: str = "") -> Any:
    """Mask what differs between runs in a whole JSON value."""
    if is_measured(key, value):
        return "<SECONDS>"
    if is_drawn(key, value):
        return "<TRACEBACK>"
    if isinstance(value, dict):
        return {name: stable(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [stable(one) for one in value]
    return steady(value) if isinstance(value, str) else value
