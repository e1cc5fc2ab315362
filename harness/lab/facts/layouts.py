"""The layouts in which a tool may show a stream: as it is, in JSON, escaped, quoted or numbered."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import Any

from .canary import tokens_in
from .truth import ProgramTruth

OWN_LINE = 40
"""Characters of a line of which it is clear who wrote it. Chosen: longer than a usual phrase."""

_PROBED_LINES = 3
"""Lines at each end of a stream whose prefixes are compared. Chosen: enough to see a pattern."""

_ESCAPED = re.compile(r'\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([nrt"\'/\\]))')
_MARKUP = re.compile(r"</\w+>")
"""The end of an element: in markup output must be escaped, elsewhere an escape changes it."""
_PLAIN = {"n": "\n", "r": "\r", "t": "\t"}
_NUMBERED = re.compile(r"(?:\\\s)*\d+")
"""A number with the blanks before it, in an escaped pattern."""


def unwrapped(text: str, truth: ProgramTruth) -> Iterator[str]:
    """Yield a text as it is, and as it reads without each layout that it may have."""
    yield text
    flat = _flattened(text)
    if flat is not None:
        yield flat
    if "\\" in text:
        yield _unescaped(text)
    if "&" in text and _MARKUP.search(text):
        yield html.unescape(text)
    for stream in (truth.stdout, truth.stderr):
        bare = _without_prefix(text, stream)
        if bare is not None:
            yield bare


def _flattened(text: str) -> str | None:
    """Write JSON as lines ``key: value``; None if the text is not JSON."""
    start = text.strip()[:1]
    if start not in ("{", "[", '"'):
        return None
    try:
        data = json.loads(text)
    except ValueError:
        return None
    return "\n".join(_leaves(data))


def _leaves(data: Any, name: str = "") -> Iterator[str]:
    """Yield the values inside some JSON, each with the nearest key above it."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _leaves(value, str(key))
    elif isinstance(data, list):
        for value in data:
            yield from _leaves(value, name)
    else:
        written = data if isinstance(data, str) else json.dumps(data)
        yield f"{name}: {written}"


def _unescaped(text: str) -> str:
    """Replace escape sequences; two halves of a character become the character."""

    def plain(found: re.Match[str]) -> str:
        digits = found[1] or found[2]
        if digits:
            return chr(int(digits, 16))
        return _PLAIN.get(found[3], found[3])

    halves = _ESCAPED.sub(plain, text)
    return halves.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _without_prefix(text: str, stream: str) -> str | None:
    """Take away what stands before each line of a stream; None if there is nothing.

    It may be the ``> `` of a quotation, or the number of the line.
    """
    pattern = _common_prefix(text, stream)
    if not pattern:
        return None

    # An empty line may have lost the blank at the end of its prefix.
    without_blank = pattern.removesuffix(re.escape(" "))
    prefix = re.compile(rf"{pattern}|{without_blank}\Z")
    bare: list[str] = []
    for line in text.split("\n"):
        if prefix.match(line):
            line = prefix.sub("", line, count=1)
        bare.append(line)
    return "\n".join(bare)


def _common_prefix(text: str, stream: str) -> str | None:
    """Return the pattern of what stands before the lines of a stream, if it is the same for all."""
    patterns: set[str] = set()
    shown = text.split("\n")
    for line in _telling_lines(stream):
        for shown_line in shown:
            if line in shown_line:
                prefix = shown_line[: shown_line.index(line)]
                patterns.add(_NUMBERED.sub(r"\\s*\\d+", re.escape(prefix)))
    return patterns.pop() if len(patterns) == 1 else None


def _telling_lines(stream: str) -> list[str]:
    """Return lines near both ends of a stream that nobody else has written, and that occur once.

    The first line is not among them: a tool may put a heading before it.
    """
    own: list[str] = []
    for line in stream.strip().split("\n")[1:]:
        if tokens_in(line) or len(line) > OWN_LINE:
            own.append(line)
    probed = [*own[:_PROBED_LINES], *own[-_PROBED_LINES:]]
    return [line for line in probed if own.count(line) == 1]
