"""What is read against what happened: no word lists, so a text may be in any language and any
layout.

The streams of a program are looked for in the text. What remains without them is the tool's own
wording. Whole streams, and streams whose beginning, middle or end is cut, are fine; a cut must tell
a number that is true.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from .canary import tokens_in, without_tokens
from .truth import ProgramTruth

Stream = Literal["stdout", "stderr"]
SHORTEST_CUT = 500
"""Characters of the shortest output that a tool may cut."""
_A_LINE = 40
"""Characters of a line of which it is clear who wrote it."""

_ESCAPED = re.compile(r'\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([nrt"\'/\\]))')
_PLAIN = {"n": "\n", "r": "\r", "t": "\t"}
_INTEGER = re.compile(r"(?<![\w.,#])-?\d{1,9}(?:,\d{3})*(?![\w#]|[.,]\d)", re.ASCII)
_DURATION = re.compile(
    r"(?<![\w.])\d+(?:\.\d+)?(?=\s?(?:ms|s|sec|seconds?|µs)\b)|(?<![\w.])\d+\.\d+"
)
_BLANKS = re.compile(r"\s+")
_NUMBERED = re.compile(r"(?:\\\s)*\d+")
"""A number with the blanks before it, in an escaped pattern."""


@dataclass(frozen=True)
class Misread:
    """One thing in which a text is not what happened."""

    kind: Literal["missing", "changed", "cut_silently", "cut_unnumbered", "cut_twice", "cut_untrue", "repeated",
                  "foreign", "scrambled", "stderr_first"]  # fmt: skip
    stream: str = ""
    details: dict[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class TextReading:
    """A text compared with the truth."""

    wrong: tuple[Misread, ...]
    wording: str
    """The text without the streams."""
    cut: frozenset[str] = frozenset()
    """Streams of which a part is missing."""
    shown: frozenset[str] = frozenset()
    """Streams of which something is there."""
    kept: int = 0
    """Characters of a cut stream that are there."""


def read_text(text: str, truth: ProgramTruth) -> TextReading:
    """Compare a text with what the program did. A tool may leave out the warnings of one that
    succeeded as a whole."""
    best: TextReading | None = None
    for variant in _variants(text, truth):
        reading = _read(variant, truth)
        if not reading.wrong:
            return reading
        if best is None or (len(reading.wrong), -reading.kept) < (len(best.wrong), -best.kept):
            best = reading
    assert best is not None
    return best


def integers(wording: str) -> frozenset[int]:
    """Return the whole numbers in a wording, without those of durations."""
    found = _INTEGER.findall(_DURATION.sub("#", wording))
    return frozenset(int(one.replace(",", "")) for one in found)


def durations(wording: str) -> frozenset[float]:
    """Return the seconds, and other numbers with fractions, in a wording."""
    return frozenset(map(float, _DURATION.findall(wording)))


def exits(code: int) -> frozenset[int]:
    """Return the numbers by which an exit code may be told: itself, and for a signal those that
    shells use."""
    if code < 0:
        return frozenset({code, -code, 128 - code})
    return frozenset({code, code - 128, 128 - code} if code > 128 else {code})


def normal_wording(wording: str, secret: Collection[str] = ()) -> str:
    """Return a wording to compare with others: without canaries, ids, addresses and durations;
    blanks collapsed."""
    for one in sorted(secret, key=len, reverse=True):
        wording = wording.replace(one, "·")
    return _BLANKS.sub(" ", _DURATION.sub("#", without_tokens(wording))).strip()


# -- the layouts in which a stream may be shown --


def _variants(text: str, truth: ProgramTruth) -> Iterator[str]:
    yield text
    flat = _flattened(text)
    if flat is not None:
        yield flat
    if "\\" in text:
        yield _unescaped(text)
    if "&" in text:
        yield html.unescape(text)
    for stream in (truth.stdout, truth.stderr):
        if (bare := _without_prefix(text, stream)) is not None:
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
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _leaves(value, str(key))
    elif isinstance(data, list):
        for value in data:
            yield from _leaves(value, name)
    else:
        yield f"{name}: {data if isinstance(data, str) else json.dumps(data)}"


def _unescaped(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        digits = found[1] or found[2]
        return chr(int(digits, 16)) if digits else _PLAIN.get(found[3], found[3])

    return _ESCAPED.sub(plain, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _without_prefix(text: str, stream: str) -> str | None:
    """Take away what stands before each line of a stream: the ``> `` of a quotation, or the
    number of the line."""
    lines = [
        line for line in stream.strip().split("\n")[1:] if tokens_in(line) or len(line) > _A_LINE
    ]
    lines = [line for line in (*lines[:3], *lines[-3:]) if lines.count(line) == 1]
    shown = text.split("\n")
    prefixes = {one[: one.index(line)] for line in lines for one in shown if line in one}
    patterns = {_NUMBERED.sub(r"\\s*\\d+", re.escape(prefix)) for prefix in prefixes}
    if len(patterns) != 1 or not (pattern := patterns.pop()):
        return None
    prefixed = re.compile(rf"{pattern}|{pattern.removesuffix(re.escape(' '))}\Z")
    return "\n".join(
        prefixed.sub("", one, count=1) if prefixed.match(one) else one for one in shown
    )


# -- one layout --


@dataclass(frozen=True)
class _Found:
    spans: tuple[tuple[int, int], ...]
    lost: str
    """The part that is missing."""


@lru_cache(maxsize=256)
def _find(stream: str, text: str) -> _Found:
    core = stream.strip()
    start = text.find(core)
    if start >= 0:
        return _Found(((start, start + len(core)),), "")
    head = _longest(len(core), lambda size: core[:size] in text)
    spans, rest = [], text
    if head >= 4:
        start = text.index(core[:head])
        spans.append((start, start + head))
        rest = text[start + head :]
    else:
        head = 0
    tail = _longest(len(core) - head, lambda size: not size or core[-size:] in rest)
    if tail >= 4:
        start = len(text) - len(rest) + rest.rindex(core[-tail:])
        spans.append((start, start + tail))
    else:
        tail = 0
    return _Found(tuple(spans), core[head : len(core) - tail])


def _longest(most: int, fits: Any) -> int:
    """Return the largest size that fits, if every smaller one does too."""
    low = 0
    while low < most:
        middle = (low + most + 1) // 2
        low, most = (middle, most) if fits(middle) else (low, middle - 1)
    return low


def _read(text: str, truth: ProgramTruth) -> TextReading:
    wrong: list[Misread] = []
    spans: list[tuple[int, int]] = []
    found = {
        name: _find(stream, text) for name in _STREAMS if (stream := getattr(truth, name)).strip()
    }
    for one in found.values():
        spans += one.spans
    wording = _outside(text, spans)
    cut, kept = set[str](), 0
    for name, one in found.items():
        stream = getattr(truth, name)
        if indent := _indent_lost(stream, one, text):
            wrong.append(Misread("changed", name, {"missing": len(indent), "lost": indent}))
        if not one.lost:
            continue
        if not one.spans:
            if truth.failed or name != "stderr":
                wrong.append(Misread("missing", name, {"tokens": tokens_in(stream)}))
            continue
        cut.add(name)
        kept = len(stream.strip()) - len(one.lost)
        wrong += _misread_cut(name, stream, one, wording, truth)
    wrong += _misread_tokens(text, truth, wording)
    if len(found) == 2 and all(one.spans for one in found.values()):
        out, err = found["stdout"].spans, found["stderr"].spans
        if (
            err[-1][1] <= out[0][0]
            and not (text[: err[0][0]] + text[err[-1][1] : out[0][0]]).strip()
        ):
            wrong.append(Misread("stderr_first"))
    shown = frozenset(name for name, one in found.items() if one.spans)
    return TextReading(tuple(wrong), wording, frozenset(cut), shown, kept)


def _indent_lost(stream: str, found: _Found, text: str) -> str:
    """Return the blanks before the first word of a stream if they are not in the text though
    that word is."""
    core = stream.lstrip()
    indent = stream[: len(stream) - len(core)].rpartition("\n")[2]
    begin = found.spans[0][0] if found.spans else -1
    shown = begin >= 0 and text.startswith(core[:4], begin)
    return indent if shown and not text.endswith(indent, 0, begin) else ""


_STREAMS: tuple[Stream, ...] = ("stdout", "stderr")


def _misread_cut(
    name: str, stream: str, found: _Found, wording: str, truth: ProgramTruth
) -> Iterator[Misread]:
    details = {"missing": len(found.lost), "lost": found.lost[:40]}
    numbers = integers(wording) - exits(truth.exit)
    if "\ufffd" in wording and "\ufffd" not in stream:
        yield Misread("changed", name, details)
    elif len(stream) < SHORTEST_CUT or not wording.strip():
        damaged = len(found.spans) == 2 or len(stream) < SHORTEST_CUT
        yield Misread("changed" if damaged else "cut_silently", name, details)
    elif any(line in wording for line in stream.split("\n") if len(line) > _A_LINE):
        yield Misread("cut_twice", name, details)
    elif not numbers:
        yield Misread("cut_unnumbered", name, details)
    elif not _true_numbers(numbers, stream, found, len(wording)):
        yield Misread("cut_untrue", name, {**details, "told": sorted(numbers)})


def _true_numbers(numbers: frozenset[int], stream: str, found: _Found, slack: int) -> bool:
    """Does a number tell how much is missing, there was or there is, in characters, bytes or
    lines?"""
    lost, core = found.lost, stream.strip()
    # A blank at the edge of the gap may be the output's or the wording's.
    edge = (
        len(stream)
        - len(core)
        + len(lost)
        - len(lost.lstrip())
        + 2 * (lost[:1].isspace() or _at_break(found, core))
    )
    kept = len(core) - len(lost)
    size, gone = len(core.encode()), len(lost.encode())
    lines, whole, touched = core.count("\n") + 1, *_lines_lost(found, core)
    true = {*range(len(lost), len(lost) + edge + 1), *range(gone, gone + edge + 1)}
    true |= {len(stream), len(core), size, len(stream.encode()), kept, size - gone}
    true |= {lines, *range(max(1, whole), touched + 1), *range(lines - touched, lines - whole + 1)}
    limits = range(kept, kept + slack + 64), range(size - gone, size - gone + slack + 64)
    return bool(numbers & true) or any(one in bound for one in numbers for bound in limits)


def _lines_lost(found: _Found, core: str) -> tuple[int, int]:
    """Return how many lines are missing as a whole, and how many at least in part."""
    start = core.index(found.lost)
    end = start + len(found.lost)
    touched = found.lost.strip("\n").count("\n") + 1
    opened = start > 0 and "\n" not in (core[start - 1], core[start])
    closed = end < len(core) and "\n" not in (core[end - 1], core[end])
    return touched - opened - closed, touched


def _at_break(found: _Found, core: str) -> bool:
    """Does the part that was found before the gap end with a line?"""
    start = core.find(found.lost) if found.lost else -1
    return start > 0 and core[start - 1].isspace()


def _misread_tokens(text: str, truth: ProgramTruth, wording: str) -> Iterator[Misread]:
    there = tokens_in(text)
    known = (
        set(tokens_in(truth.stdout)) | set(tokens_in(truth.stderr)) | set(tokens_in(truth.warnings))
    )
    if foreign := [one for one in there if one not in known]:
        yield Misread("foreign", "", {"tokens": foreign})
    if repeated := sorted({one for one in there if one in known and there.count(one) > 1}):
        yield Misread("repeated", "", {"tokens": repeated})
    elif astray := [
        one for one in tokens_in(wording) if one in known and one not in tokens_in(truth.warnings)
    ]:
        yield Misread("scrambled", "", {"tokens": astray})


def _outside(text: str, spans: list[tuple[int, int]]) -> str:
    pieces, at = [], 0
    for start, end in sorted(spans):
        pieces.append(text[at:start])
        at = max(at, end)
    return "".join([*pieces, text[at:]])
