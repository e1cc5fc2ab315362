"""What no two runs of even one server share, and the mark that stands for it: pure tables and functions."""

from __future__ import annotations

import re
from typing import Any

from sfusion.harness.probes.patterns import mask

_UNSTABLE = tuple(
    (re.compile(pattern), stands)
    for pattern, stands in (
        (r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", "<DATE>"),
        (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?", "<DATE>"),
        (r"<IPYKERNEL>\.py|\b(?<=\()\d{6,}\.py(?=, line)|<CELL>\.py", "<CELL>.py"),
        (r"<PY>(?:/(?:site|dist)-packages)+", "<PY>"),
        (r"\bin \d+\.\d+s\b", "in <SECONDS>"),
        (r"platform linux -- Python [\d.]+, pytest-[\d.]+, pluggy-[\d.]+", "<PYTEST>"),
        (r"plugins: [^\n]*\n", ""),
        # Versions of Python draw these under other parts of a line, or not at all.
        (r"(?m)^[ \t]*[\^~][ \t^~]*\n?", ""),
        (r"\b(?:aarch64|x86_64)-linux-gnu", "<ARCH>"),
        (r"Python 3\.\d+\.\d+", "<PYTHON>"),
        (r"Node\.js v[\d.]+", "<NODE>"),
    )
)

MEASURED = "execution_time"
"""The key of seconds that were measured."""
DRAWN = "traceback"
"""The key of lines that every version of Python and IPython draws in its own way."""


def steady(text: str) -> str:
    """The text without what differs from run to run and from machine to machine."""
    text = mask(text)
    for pattern, stands in _UNSTABLE:
        text = pattern.sub(stands, text)
    return text


def is_measured(key: str, value: Any) -> bool:
    """Is this a number that never repeats?"""
    return key == MEASURED and isinstance(value, int | float) and not isinstance(value, bool)


def is_drawn(key: str, value: Any) -> bool:
    """Are these lines that never repeat?"""
    return key == DRAWN and isinstance(value, list) and bool(value)


def stable(value: Any, key: str = "") -> Any:
    """A whole JSON value without what differs from run to run."""
    if is_measured(key, value):
        return "<SECONDS>"
    if is_drawn(key, value):
        return "<TRACEBACK>"
    if isinstance(value, dict):
        return {name: stable(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [stable(one) for one in value]
    return steady(value) if isinstance(value, str) else value
