"""Compares what is read with what happened.

There are no word lists, so a text may be in any language and any layout. The streams of a program
are looked for in the text; what remains without them is the tool's own wording. Whole streams, and
streams whose beginning, middle or end is cut, are fine; a cut must tell a number that is true.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from .canary import tokens_in, without_tokens
from .layouts import OWN_LINE, unwrapped
from .truth import ProgramTruth

Stream = Literal["stdout", "stderr"]
MisreadKind = Literal[
    "missing",
    "changed",
    "cut_silently",
    "cut_unnumbered",
    "cut_twice",
    "cut_untrue",
    "repeated",
    "foreign",
    "scrambled",
    "stderr_first",
    "null",
    "inserted",
]

_STREAMS: tuple[Stream, ...] = ("stdout", "stderr")

SHORTEST_CUT = 500
"""Characters of the shortest output that a tool may cut. Chosen: no model minds reading them."""

_INTEGER = re.compile(r"(?<![\w.,#])-?\d{1,9}(?:,\d{3})*(?![\w#]|[.,]\d)", re.ASCII)
_DURATION = re.compile(
    r"(?<![\w.])\d+(?:\.\d+)?(?=\s?(?:ms|s|sec|seconds?|µs)\b)|(?<![\w.])\d+\.\d+"
)
_BLANKS = re.compile(r"\s+")

_FIRST_SIGNAL_EXIT = 128
"""Shells report a program that signal N ended with exit code 128 + N."""


@dataclass(frozen=True)
class Misread:
    """One thing in which a text is not what happened."""

    kind: MisreadKind
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
    """Compare a text with what the program did, in the layout in which the least is wrong.

    A tool may leave out the warnings of a program that succeeded, as a whole.
    """
    best: TextReading | None = None
    for variant in unwrapped(text, truth):
        reading = _read(variant, truth)
        if not reading.wrong:
            return reading
        if best is None or _badness(reading) < _badness(best):
            best = reading
    assert best is not None, "the text as it is comes first"
    return best


def _badness(reading: TextReading) -> tuple[int, int]:
    """Return by what readings of the same text are compared; the least is the best."""
    return len(reading.wrong), -reading.kept


def integers(wording: str) -> frozenset[int]:
    """Return the whole numbers in a wording, without those of durations."""
    found = _INTEGER.findall(_DURATION.sub("#", wording))
    return frozenset(int(digits.replace(",", "")) for digits in found)


def durations(wording: str) -> frozenset[float]:
    """Return the seconds, and other numbers with fractions, in a wording."""
    return frozenset(map(float, _DURATION.findall(wording)))


def exits(code: int) -> frozenset[int]:
    """Return the numbers by which an exit code may be told.

    These are the code itself, and for a signal also its number and what shells make of it.
    """
    if code < 0:
        return frozenset({code, -code, _FIRST_SIGNAL_EXIT - code})
    if code > _FIRST_SIGNAL_EXIT:
        return frozenset({code, code - _FIRST_SIGNAL_EXIT, _FIRST_SIGNAL_EXIT - code})
    return frozenset({code})


def normal_wording(wording: str, secret: Collection[str] = ()) -> str:
    """Return a wording to compare with others.

    It is without canaries, ids, addresses and durations, and its blanks are collapsed.
    """
    for text in sorted(secret, key=len, reverse=True):
        wording = wording.replace(text, "·")
    without_times = _DURATION.sub("#", without_tokens(wording))
    return _BLANKS.sub(" ", without_times).strip()


# -- where a stream is in a text --


_LEAST_FOUND = 4
"""Characters of a stream that are taken for a part of it. Chosen: fewer occur by chance."""


@dataclass(frozen=True)
class _Found:
    """The parts of a stream that a text contains: all of it, its beginning, its end, or both."""

    spans: tuple[tuple[int, int], ...]
    lost: str
    """The part that is missing."""


_CACHED_SEARCHES = 256
"""Chosen: enough for the calls that are read at a time; each result keeps its text in memory."""


@lru_cache(maxsize=_CACHED_SEARCHES)
def _find(stream: str, text: str) -> _Found:
    """Look for a stream in a text: as a whole, else for its longest beginning and end."""
    core = stream.strip()
    start = text.find(core)
    if start >= 0:
        return _Found(((start, start + len(core)),), lost="")

    spans: list[tuple[int, int]] = []
    searched_from = 0
    head = _longest(len(core), lambda size: core[:size] in text)
    if head >= _LEAST_FOUND:
        start = text.index(core[:head])
        searched_from = start + head
        spans.append((start, searched_from))
    else:
        head = 0

    rest = text[searched_from:]
    tail = _longest(len(core) - head, lambda size: not size or core[-size:] in rest)
    if tail >= _LEAST_FOUND:
        start = searched_from + rest.rindex(core[-tail:])
        spans.append((start, start + tail))
    else:
        tail = 0
    return _Found(tuple(spans), lost=core[head : len(core) - tail])


def _longest(most: int, fits: Callable[[int], bool]) -> int:
    """Return the largest size that fits, if every smaller one does too."""
    low = 0
    high = most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _outside(text: str, spans: Collection[tuple[int, int]]) -> str:
    """Return a text without some parts of it."""
    pieces: list[str] = []
    at = 0
    for start, end in sorted(spans):
        pieces.append(text[at:start])
        at = max(at, end)
    pieces.append(text[at:])
    return "".join(pieces)


# -- what is wrong with a text --


def _read(text: str, truth: ProgramTruth) -> TextReading:
    """Compare a text in one layout with what the program did."""
    found = _found_streams(text, truth)
    wording = _outside(text, [span for part in found.values() for span in part.spans])

    wrong: list[Misread] = []
    cut: set[str] = set()
    kept = 0
    for name, part in found.items():
        stream = getattr(truth, name)
        wrong += _misread_indent(name, stream, part, text)
        if not part.lost:
            wrong += _misread_insertion(name, part, text)
            continue
        if not part.spans:
            if truth.failed or name != "stderr":
                wrong.append(Misread("missing", name, {"tokens": tokens_in(stream)}))
            continue
        cut.add(name)
        kept = len(stream.strip()) - len(part.lost)
        wrong += _misread_cut(name, stream, part, wording, truth)

    wrong += _misread_tokens(text, truth, wording)
    wrong += _misread_nulls(text, found)
    if _has_stderr_first(text, found):
        wrong.append(Misread("stderr_first"))
    return TextReading(
        wrong=tuple(wrong),
        wording=wording,
        cut=frozenset(cut),
        shown=frozenset(name for name, part in found.items() if part.spans),
        kept=kept,
    )


def _found_streams(text: str, truth: ProgramTruth) -> dict[Stream, _Found]:
    """Look for each stream that is not blank."""
    found: dict[Stream, _Found] = {}
    for name in _STREAMS:
        stream = getattr(truth, name)
        if stream.strip():
            found[name] = _find(stream, text)
    return found


def _misread_indent(name: str, stream: str, found: _Found, text: str) -> Iterator[Misread]:
    """Find that the first word of a stream is there, but not the blanks before it."""
    if not found.spans:
        return
    core = stream.lstrip()
    indent = stream[: len(stream) - len(core)].rpartition("\n")[2]
    begin, _ = found.spans[0]
    begins_here = text.startswith(core[:_LEAST_FOUND], begin)
    if indent and begins_here and not text.endswith(indent, 0, begin):
        yield Misread("changed", name, {"missing": len(indent), "lost": indent})


_NULL = re.compile(r"\s*(None|null|undefined|nil)\s*(?:\n|\Z)")
"""What languages write for a value that is not there. It stands on a line of its own."""


def _misread_nulls(text: str, found: Mapping[Stream, _Found]) -> Iterator[Misread]:
    """Find a missing value that is written as a line right after the output, as if the program had
    printed it, or in place of an output that is empty."""
    if not found:
        ends = [0] if _NULL.fullmatch(text) else []
    else:
        ends = [part.spans[-1][1] for part in found.values() if part.spans]
    for end in ends:
        if written := _NULL.match(text, end):
            yield Misread("null", details={"lost": written[1]})
            return


def _misread_insertion(name: str, found: _Found, text: str) -> Iterator[Misread]:
    """Find something inside a stream of which nothing is missing."""
    for (_, end), (start, _) in itertools.pairwise(found.spans):
        yield Misread("inserted", name, {"lost": text[end:start][:_SHOWN_LOSS]})


def _has_stderr_first(text: str, found: Mapping[Stream, _Found]) -> bool:
    """Return whether the errors stand before the output, with nothing that says so."""
    if "stdout" not in found or "stderr" not in found:
        return False
    out = found["stdout"].spans
    err = found["stderr"].spans
    if not out or not err:
        return False

    err_start, _ = err[0]
    _, err_end = err[-1]
    out_start, _ = out[0]
    if err_end > out_start:
        return False
    said = text[:err_start] + text[err_end:out_start]
    return not said.strip()


_SHOWN_LOSS = 40
"""Characters of a missing part that a finding shows. Chosen: enough to find it in the output."""


def _misread_cut(
    name: str, stream: str, found: _Found, wording: str, truth: ProgramTruth
) -> Iterator[Misread]:
    """Find what is wrong with a cut: that it is not told, told without a number, or untrue."""
    details = {"missing": len(found.lost), "lost": found.lost[:_SHOWN_LOSS]}
    numbers = integers(wording) - exits(truth.exit)
    own_lines = [line for line in stream.split("\n") if len(line) > OWN_LINE]
    broken_character = "\ufffd" in wording and "\ufffd" not in stream
    if broken_character or len(stream) < SHORTEST_CUT:
        yield Misread("changed", name, details)
    elif not wording.strip():
        in_the_middle = len(found.spans) == 2
        yield Misread("changed" if in_the_middle else "cut_silently", name, details)
    elif any(line in wording for line in own_lines):
        yield Misread("cut_twice", name, details)
    elif not numbers:
        yield Misread("cut_unnumbered", name, details)
    elif not _is_true(numbers, stream, found, wording):
        yield Misread("cut_untrue", name, {**details, "told": sorted(numbers)})


_LIMIT_SLACK = 64
"""By how much a cut text may stay below the limit that it names, beside the length of the wording.

Chosen: tools round the place of a cut to a line or a word.
"""


def _is_true(numbers: frozenset[int], stream: str, found: _Found, wording: str) -> bool:
    """Return whether a number tells how much is missing, how much there was, or how much is left.

    It may count characters, bytes or lines, or name the limit at which the tool cuts; but in the
    middle of an output a number is read as what is missing there. A number of "characters" does not
    count bytes, nor the other way round.
    """
    core = stream.strip()
    if numbers & _true_line_counts(core, found):
        return True
    units = {int(number.replace(",", "")): unit for number, unit in _UNIT.findall(wording)}
    for unit, size in _SIZES.items():
        other_units = {number for number in numbers if units.get(number, unit).lower() != unit}
        fitting = numbers - other_units
        if fitting & _true_sizes(stream, found, size):
            return True
        if len(found.spans) > 1:
            continue
        kept = size(core) - size(found.lost)
        slack = len(wording) + _LIMIT_SLACK
        if any(kept <= number < kept + slack for number in fitting):
            return True
    return False


def _size_in_bytes(text: str) -> int:
    return len(text.encode())


_UNIT = re.compile(
    r"(?<![\w.,#])(\d[\d,]*)\s+(?:\w+\s+){0,2}?(char|byte)", re.ASCII | re.IGNORECASE
)
"""A number that says what it counts."""
_SIZES: Mapping[str, Callable[[str], int]] = {"char": len, "byte": _size_in_bytes}


def _true_sizes(stream: str, found: _Found, size: Callable[[str], int]) -> set[int]:
    """Return the sizes of what is missing, or of what there was."""
    core = stream.strip()
    lost = found.lost
    # A blank at the edge of the gap may be the output's or the wording's.
    edge = len(stream) - len(core)
    edge += len(lost) - len(lost.lstrip())
    if lost[:1].isspace() or _is_after_blank(found, core):
        edge += 2

    missing = size(lost)
    return {size(stream), size(core), *range(missing, missing + edge + 1)}


def _true_line_counts(core: str, found: _Found) -> set[int]:
    """Return the lines that are missing, that there were, and that are left.

    A line of which a part is missing may be counted or not.
    """
    lines = core.count("\n") + 1
    whole, touched = _lines_lost(found, core)
    counts = {lines}
    counts.update(range(max(1, whole), touched + 1))
    counts.update(range(lines - touched, lines - whole + 1))
    return counts


def _lines_lost(found: _Found, core: str) -> tuple[int, int]:
    """Return how many lines are missing as a whole, and how many at least in part."""
    start = core.index(found.lost)
    end = start + len(found.lost)
    touched = found.lost.strip("\n").count("\n") + 1

    whole = touched
    if start > 0 and "\n" not in (core[start - 1], core[start]):
        whole -= 1  # the first begins before the gap
    if end < len(core) and "\n" not in (core[end - 1], core[end]):
        whole -= 1  # the last ends behind it
    return whole, touched


def _is_after_blank(found: _Found, core: str) -> bool:
    """Return whether the part before the gap ends with a blank."""
    start = core.find(found.lost) if found.lost else -1
    return start > 0 and core[start - 1].isspace()


def _misread_tokens(text: str, truth: ProgramTruth, wording: str) -> Iterator[Misread]:
    """Find canaries that are not this program's, that are repeated, or that are out of place."""
    there = tokens_in(text)
    warned = set(tokens_in(truth.warnings))
    known = {*tokens_in(truth.stdout), *tokens_in(truth.stderr), *warned}

    foreign = [token for token in there if token not in known]
    if foreign:
        yield Misread("foreign", details={"tokens": foreign})

    repeated = {token for token in there if token in known and there.count(token) > 1}
    if repeated:
        yield Misread("repeated", details={"tokens": sorted(repeated)})
        return
    astray = [token for token in tokens_in(wording) if token in known - warned]
    if astray:
        yield Misread("scrambled", details={"tokens": astray})
