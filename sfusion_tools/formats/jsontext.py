"""Reads one JSON value from a text that is still arriving, and says where and why it is broken.

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
"""Arguments nested deeper than this are refused, in every format.

Chosen: half of the 200 brackets at which Python's own parser stops.
"""
ENOUGH = DEEPEST + 3
"""A text with more levels is too deep, even if the outermost three are not arguments.

Those are a list of calls, a call and a wrapper.
"""

_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+"')
_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
_WORD = re.compile(r"[-+.\w]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_CONTROLS = "bfnrt"
_ESCAPED = '"\\/' + _CONTROLS
"""What may follow a backslash in a JSON string, besides u."""
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

    def fail(self, found: str, expected: str) -> None:
        """Note what was found in place of what was expected."""
        shown = json.dumps(found[:40], ensure_ascii=False)
        self.found = found
        self.expected = expected
        self.fault = Flaw(
            "bad_json", f"its JSON has {shown} at character {self.size}; expected {expected}"
        )

    def cut(self) -> None:
        """Note that the text ends inside the value."""
        self.truncated = True
        self.fault = Flaw("truncated", "the text ends before its JSON is complete")

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
    known = reader.notes.get((scan_json, scan.start))
    if known:
        outer, stop = known
        scan.repeat(outer)
        reader.seek(stop)
        return scan

    brackets = _Brackets()
    yield from _value(reader, scan, brackets)
    if scan.too_deep:
        scan.fault = TOO_DEEP
    elif scan.fault:
        for start in brackets.starts:
            reader.notes[scan_json, start] = (scan, reader.offset)
    return scan


_A_VALUE = "a value"
_A_VALUE_OR_END = "a value or ']'"
_A_KEY = "a quoted key"
_A_KEY_OR_END = "a quoted key or '}'"
_COLON = "':'"
_COMMA_IN_LIST = "',' or ']'"
_COMMA_IN_OBJECT = "',' or '}'"
"""What is expected next. Messages show these texts."""

_VALUES = (_A_VALUE, _A_VALUE_OR_END)
_KEYS = (_A_KEY, _A_KEY_OR_END)
_AFTER_SEPARATOR = {
    (_COLON, ":"): _A_VALUE,
    (_COMMA_IN_LIST, ","): _A_VALUE,
    (_COMMA_IN_OBJECT, ","): _A_KEY,
}
"""What follows a separator where it is expected."""


class _Brackets:
    """The brackets that are open, and what is expected next."""

    __slots__ = ("closers", "expected", "starts")

    def __init__(self) -> None:
        self.closers: list[str] = []
        self.starts: list[int] = []
        """Where each of the open brackets is."""
        self.expected = _A_VALUE

    def open(self, char: str, start: int) -> None:
        self.starts.append(start)
        if char == "{":
            self.closers.append("}")
            self.expected = _A_KEY_OR_END
        else:
            self.closers.append("]")
            self.expected = _A_VALUE_OR_END

    def can_close(self, char: str) -> bool:
        return bool(self.closers) and char == self.closers[-1] and char in self.expected

    def close(self) -> None:
        self.closers.pop()
        self.starts.pop()

    def end_value(self) -> bool:
        """Expect what follows a value; return False if that was the outermost one."""
        if not self.closers:
            return False
        self.expected = _COMMA_IN_OBJECT if self.closers[-1] == "}" else _COMMA_IN_LIST
        return True


def _value(reader: TextReader, scan: JsonScan, brackets: _Brackets) -> Scan[None]:
    """Read a value with all that is in it, up to its end or to the first wrong character."""
    while True:
        scan.add((yield from reader.spaces()))
        char = yield from reader.peek()
        if not char:
            scan.cut()
            return

        if brackets.can_close(char):
            brackets.close()
            scan.add(reader.take(1))
        elif brackets.expected in _VALUES:
            if char in "{[":
                scan.too_deep = scan.too_deep or len(brackets.closers) >= ENOUGH
                brackets.open(char, reader.offset)
                scan.add(reader.take(1))
                continue
            if char == '"':
                yield from _string(reader, scan)
            else:
                yield from _word(reader, scan, char, brackets.expected)
        elif brackets.expected in _KEYS and char == '"':
            yield from _string(reader, scan)
            if scan.fault:
                return
            brackets.expected = _COLON
            continue
        elif following := _AFTER_SEPARATOR.get((brackets.expected, char)):
            scan.add(reader.take(1))
            brackets.expected = following
            continue
        else:
            scan.fail(char, brackets.expected)

        if scan.fault or not brackets.end_value():
            return


def _word(reader: TextReader, scan: JsonScan, char: str, expected: str) -> Scan[None]:
    """Read a number, true, false or null."""
    word = yield from reader.run(_WORD)
    if word in ("true", "false", "null") or _NUMBER.fullmatch(word):
        scan.add(word)
    elif word and not (yield from reader.peek()):
        scan.cut()
    else:
        scan.fail(word or char, expected)


def _string(reader: TextReader, scan: JsonScan) -> Scan[None]:
    """Read a string from its opening quote on."""
    whole = reader.arrived(_STRING)
    if whole is not None:
        scan.add(whole)
        return

    first_part = len(scan.parts)
    strays_before = len(scan.strays)
    has_controls = False
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
        if pair[1] == "u":
            yield from _unicode_escape(reader, scan)
            if scan.fault:
                return
            has_controls = True
        elif pair[1] in _ESCAPED:
            scan.add(reader.take(2))
            has_controls = has_controls or pair[1] in _CONTROLS
        else:
            scan.strays.append(scan.size)
            scan.add(reader.take(1))

    if has_controls and len(scan.strays) > strays_before and not scan.ambiguous:
        scan.ambiguous = "".join(scan.parts[first_part:])


def _unicode_escape(reader: TextReader, scan: JsonScan) -> Scan[None]:
    """Read a \\u with its four digits, or only the \\u if they are not there."""
    unit = yield from reader.peek(6)
    if len(unit) < 6 and '"' not in unit:
        scan.cut()
    elif _UNICODE.fullmatch(unit):
        scan.add(reader.take(6))
    else:
        scan.broken_unicode = scan.broken_unicode or unit
        scan.add(reader.take(2))


@dataclass(frozen=True, slots=True)
class Loaded:
    """The value of a scan, and the flaws that were repaired."""

    value: Any
    repaired: tuple[Flaw, ...] = ()


def load(scan: JsonScan) -> Loaded | Flaw:
    """Return the value of a complete scan, or the flaw for which it must be refused."""
    unclear = _unclear_escape(scan)
    if unclear:
        return unclear

    repaired: list[Flaw] = []
    text = scan.text
    if scan.strays:
        first = scan.strays[0]
        shown = text[first : first + 2]
        message = f"{shown} is not a JSON escape; it was read as a literal backslash (write \\\\)"
        repaired.append(Flaw("bad_escape", message))
        text = _with_doubled(text, scan.strays)
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

    odd = _odd_escape(text)
    if odd:
        message = (
            f"{odd} was read as a control character, as in JSON; write \\\\ if you "
            "meant a literal backslash"
        )
        repaired.append(Flaw("suspicious_escape", message))
    return Loaded(value, tuple(repaired))


def _unclear_escape(scan: JsonScan) -> Flaw | None:
    """Return the flaw of a string whose backslashes can be read in more than one way."""
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
            "backslashes are literal; write every literal backslash as \\\\",
        )
    return None


def _with_doubled(text: str, places: list[int]) -> str:
    """Return the text with another backslash at each of these places."""
    cuts = [0, *places, len(text)]
    return "\\".join(text[start:end] for start, end in itertools.pairwise(cuts))


_UNLIKE_LATEX = {"\\f": "\\u000c", "\\b": "\\u0008"}


def dump(value: Any) -> str:
    """Encode as models do.

    ``\\f`` and ``\\b`` are written as ``\\u`` escapes so that they do not look like LaTeX.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _ESCAPE.sub(lambda escape: _UNLIKE_LATEX.get(escape[0], escape[0]), text)


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
        for _ in _value(reader, scan, _Brackets()):
            raise AssertionError("a scanner asked for more text after the end")
        if scan.too_deep:
            raise TooDeepError
    value = json.loads(
        text, strict=strict, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float
    )
    if "\\ud" in text.lower() and SURROGATE.search(json.dumps(value, ensure_ascii=False)):
        raise ValueError("a lone \\u surrogate is not a character")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object; raises DuplicateKeyError if two of its keys are equal."""
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
