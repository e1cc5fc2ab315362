"""Reads one JSON value from a text that is still arriving, and reports exactly where and why it is
broken.

The scanner stops at the first character that cannot be JSON, so that a broken call does not swallow
the next one. Two common mistakes are repaired, because there is only one way to read them: a raw
line break or tab inside a string, and a backslash before a character that has no escape (``\\d``),
unless the same string also has escapes that may be the same mistake (``\\n``, ``\\t``, ``\\b``,
``\\f``, ``\\r``, ``\\u``).
"""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass, field
from typing import Any

from sfusion_tools.bounded_input import nesting

from .text_reader import Scan, TextReader

DEEPEST = 100
"""Arguments nested deeper than this are refused, in every format. Python's own parser stops at 200
brackets."""
ENOUGH = DEEPEST + 3
"""A text with more levels is too deep even if the outermost ones are a list of calls, a call and a
wrapper."""

_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+"')
_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
_WORD = re.compile(r"[-+.\w]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_UNICODE = re.compile(r"\\u[0-9a-fA-F]{4}")
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)", re.DOTALL)
SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Flaw:
    """What is wrong with a piece of text, as the end of a sentence."""

    kind: str
    message: str


NOT_BEGUN = Flaw("truncated", "the text ends where the call should begin")
CUT_MARKER = Flaw("truncated", "the text ends inside the marker that would begin it")
CUT_HEAD = Flaw("truncated", "the text ends before its arguments")
UNCLOSED = Flaw("bad_json", "a string in its JSON is never closed")
TOO_DEEP = Flaw("too_deep", f"its arguments are nested deeper than {DEEPEST} levels")


@dataclass(slots=True)
class JsonScan:
    """The text of one value, and what is wrong with it."""

    start: int
    parts: list[str] = field(default_factory=list)
    fault: Flaw | None = None
    truncated: bool = False
    too_deep: bool = False
    found: str = ""
    """What was found where the JSON is broken."""
    expected: str = ""
    strays: list[int] = field(default_factory=list)
    """The positions of backslashes that escape nothing."""
    ambiguous: str = ""
    """A string in which strays and real control escapes are mixed."""
    broken_unicode: str = ""
    """A \\u that is not followed by four hexadecimal digits."""
    raw_control: bool = False
    size: int = 0

    @property
    def text(self) -> str:
        return "".join(self.parts)

    def add(self, text: str) -> None:
        self.parts.append(text)
        self.size += len(text)

    def fail(self, found: str, expected: str) -> JsonScan:
        shown = json.dumps(found[:40], ensure_ascii=False)
        self.found = found
        self.expected = expected
        self.fault = Flaw(
            "bad_json", f"its JSON has {shown} at character {self.size}; expected {expected}"
        )
        return self

    def cut(self) -> JsonScan:
        self.truncated = True
        self.fault = Flaw("truncated", "the text ends before its JSON is complete")
        return self

    def repeat(self, outer: JsonScan) -> None:
        """Fail as the scan of a value around this one did, in which this one was open."""
        self.size = outer.size - (self.start - outer.start)
        if outer.truncated:
            self.cut()
        else:
            self.fail(outer.found, outer.expected)


def scan_json(reader: TextReader) -> Scan[JsonScan]:
    """Read one value. The reader stops after it, or at the first wrong character.

    A value that was open when an earlier scan failed fails at the same place, so it is not read
    again.
    """
    scan = JsonScan(reader.offset)
    if known := reader.notes.get((scan_json, scan.start)):
        outer, stop = known
        scan.repeat(outer)
        reader.seek(stop)
        return scan
    opened: list[int] = []
    yield from _value(reader, scan, opened)
    if scan.too_deep:
        scan.fault = TOO_DEEP
    elif scan.fault:
        reader.notes.update({(scan_json, start): (scan, reader.offset) for start in opened})
    return scan


def _value(reader: TextReader, scan: JsonScan, opened: list[int]) -> Scan[JsonScan]:
    """Read a value; ``opened`` is where each of its brackets that are open begins."""
    closers: list[str] = []
    expect = "a value"
    while True:
        scan.add((yield from reader.spaces()))
        char = yield from reader.peek()
        if not char:
            return scan.cut()
        if closers and char == closers[-1] and char in expect:
            closers.pop()
            opened.pop()
            scan.add(reader.take(1))
        elif expect.startswith("a value"):
            if char in "{[":
                scan.too_deep = scan.too_deep or len(closers) >= ENOUGH
                closers.append("}" if char == "{" else "]")
                opened.append(reader.offset)
                scan.add(reader.take(1))
                expect = "a quoted key or '}'" if char == "{" else "a value or ']'"
                continue
            if char == '"':
                yield from _string(reader, scan)
            else:
                word = yield from reader.run(_WORD)
                if not (word in ("true", "false", "null") or _NUMBER.fullmatch(word)):
                    if word and not (yield from reader.peek()):
                        return scan.cut()
                    return scan.fail(word or char, expect)
                scan.add(word)
        elif expect.startswith("a quoted key") and char == '"':
            yield from _string(reader, scan)
            if scan.truncated:
                return scan
            expect = "':'"
            continue
        elif char in ":," and expect.startswith(f"'{char}'"):
            scan.add(reader.take(1))
            expect = "a quoted key" if char == "," and closers[-1] == "}" else "a value"
            continue
        else:
            return scan.fail(char, expect)
        if scan.truncated or not closers:
            return scan
        expect = f"',' or '{closers[-1]}'"


def _string(reader: TextReader, scan: JsonScan) -> Scan[None]:
    if (whole := reader.arrived(_STRING)) is not None:
        scan.add(whole)
        return
    begin = len(scan.parts)
    strays = len(scan.strays)
    controls = False
    scan.add(reader.take(1))
    while True:
        scan.add((yield from reader.run(_PLAIN)))
        char = yield from reader.peek()
        if not char:
            scan.cut()
            return
        if char == '"':
            scan.add(reader.take(1))
            break
        if char != "\\":
            scan.raw_control = True
            scan.add(reader.take(1))
            continue
        pair = yield from reader.peek(2)
        if len(pair) < 2:
            scan.cut()
            return
        if pair[1] in '"\\/':
            scan.add(reader.take(2))
        elif pair[1] in "bfnrt":
            controls = True
            scan.add(reader.take(2))
        elif pair[1] == "u":
            unit = yield from reader.peek(6)
            if len(unit) < 6 and '"' not in unit:
                scan.cut()
                return
            if not _UNICODE.fullmatch(unit):
                scan.broken_unicode = scan.broken_unicode or unit
            controls = True
            scan.add(reader.take(6 if _UNICODE.fullmatch(unit) else 2))
        else:
            scan.strays.append(scan.size)
            scan.add(reader.take(1))
    if controls and len(scan.strays) > strays and not scan.ambiguous:
        scan.ambiguous = "".join(scan.parts[begin:])


@dataclass(frozen=True, slots=True)
class Loaded:
    """The value of a scan, and the flaws that were repaired."""

    value: Any
    repaired: tuple[Flaw, ...] = ()


def load(scan: JsonScan) -> Loaded | Flaw:
    """Return the value of a complete scan, or the flaw for which it must be refused."""
    repaired: list[Flaw] = []
    text = scan.text
    if scan.broken_unicode:
        shown = scan.broken_unicode.split('"')[0]
        return Flaw(
            "bad_escape",
            f"{shown} in its JSON is not a valid \\u escape (\\u needs four hexadecimal digits); "
            "write \\\\u for a literal \\u",
        )
    if scan.ambiguous:
        return Flaw(
            "ambiguous_escape",
            "one of its strings mixes invalid and valid escapes, so it is unclear which "
            "backslashes are literal; "
            "write every literal backslash as \\\\",
        )
    if scan.strays:
        shown = text[scan.strays[0] : scan.strays[0] + 2]
        message = f"{shown} is not a JSON escape; it was read as a literal backslash (write \\\\)"
        repaired.append(Flaw("bad_escape", message))
        text = "\\".join(
            text[start:end] for start, end in itertools.pairwise([0, *scan.strays, len(text)])
        )
    if scan.raw_control:
        message = (
            "a string contains a raw line break or tab, which was kept; write \\n and \\t instead"
        )
        repaired.append(Flaw("raw_control", message))
    try:
        value = loads(text, strict=False)
    except DuplicateKeyError as twice:
        return Flaw("duplicate_key", f"its JSON has the key {twice} twice; write every key once")
    except TooDeepError:
        return TOO_DEEP
    except (ValueError, RecursionError) as error:
        return Flaw("bad_json", f"its JSON cannot be read ({error})")
    if odd := _odd_escape(text):
        message = (
            f"{odd} was read as a control character, as in JSON; write \\\\ if you "
            "meant a literal backslash"
        )
        repaired.append(Flaw("suspicious_escape", message))
    return Loaded(value, tuple(repaired))


def dump(value: Any) -> str:
    """Encode as models do; ``\\f`` and ``\\b`` are written as ``\\u`` escapes so that they do not
    look like LaTeX."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _ESCAPE.sub(
        lambda match: {"\\f": "\\u000c", "\\b": "\\u0008"}.get(match[0], match[0]), text
    )


def _odd_escape(text: str) -> str:
    """Return the first ``\\b`` or ``\\f`` before a letter, as in LaTeX with a single backslash."""
    for match in _ESCAPE.finditer(text):
        if match[0] in ("\\b", "\\f") and text[match.end() : match.end() + 1].isalpha():
            return match[0]
    return ""


class DuplicateKeyError(ValueError):
    """Raised for a key that an object has more than once."""


class TooDeepError(ValueError):
    """Raised for values nested so deep that Python's decoder might run out of stack."""


def loads(text: str, *, strict: bool) -> Any:
    """Decode strict JSON: without NaN, repeated keys or lone surrogates."""
    if nesting(text) > ENOUGH:
        reader = TextReader()
        reader.feed(text)
        reader.close()
        scan = JsonScan(0)
        list(_value(reader, scan, []))
        if scan.too_deep:
            raise TooDeepError
    value = json.loads(
        text, strict=strict, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float
    )
    if "\\ud" in text.lower() and SURROGATE.search(json.dumps(value, ensure_ascii=False)):
        raise ValueError("a lone \\u surrogate is not a character")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise DuplicateKeyError(json.dumps(key, ensure_ascii=False))
            seen.add(key)
    return found


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"the number {text[:40]} is too large")
    return value
