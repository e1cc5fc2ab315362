"""Pythonic calls, as in Llama 4: a Python list of calls with literals as keyword arguments."""

from __future__ import annotations

import ast
import functools
import itertools
import keyword
import re
import unicodedata
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from sfusion_tools.errors import RenderError

from . import literal
from .format import Format
from .jsontext import NOT_BEGUN, TOO_DEEP, DuplicateKeyError, Flaw, Loaded
from .lookalikes import position_in
from .streamparser import StreamParser
from .text_reader import Markers, Scan
from .toolbox import Toolbox

_NAME = re.compile(r"[A-Za-z_][\w.]*")
_WORD = re.compile(r"[\w.]+")
_BETWEEN = re.compile(r"\)\s*,\s*(?=[A-Za-z_][\w.]*\()")
_TRIES = 20
"""How often, at most, to look for the calls after an unclosed string.

Chosen: models rarely make more than a few calls in one list.
"""
_READ_AGAIN = 500_000
"""How many characters to read again in these tries together.

Chosen: Python parses so many in a fraction of a second.
"""
_TOKEN = re.compile(
    r"""(?s)(?P<string>'''.*?'''|\"\"\".*?\"\"\"|'(?:[^'\\\n]|\\.)*+'|"(?:[^"\\\n]|\\.)*+")"""
    r"""|(?P<call>[A-Za-z_][\w.]*+(?=\())"""
    r"""|(?P<blank>\s++)"""
    r"""|[\w.]++"""
    r"""|."""
)
_ON_ITS_LINE = re.compile(r"\n[ \t]*([A-Za-z_][\w.]*)\(")
_NO_CALL = r"(?=[ \t\r\n]*+[\w.]*+[ \t\r\n]*+[^\s\w.(])"
"""After a bracket: no parenthesis, perhaps with a name before it."""
_LINE = re.compile(r"[^\n]+")
_ALMOST = re.compile(r"\[[^\[\]()]{1,80}+\([^()\n]{1,80}?=(?!=)")
"""A list of calls with something else than a name before the parenthesis."""
_CUT = Flaw(
    "stray_text",
    "text that ends like a call follows its list; a quote inside a string is probably not escaped",
)
_NAMELESS = Flaw("missing_name", "there is no name before its (")
_JOINED = Flaw(
    "adjacent_strings", "strings that stand side by side were joined; write a single one"
)
_AWAITED = Flaw("python_spelling", "there is an await before it, which was ignored")
_RAW_BREAK = Flaw(
    "raw_control", "a string contains a raw line break, which was kept; write \\n instead"
)
_REST = Markers(("\n", "[", "')]", '")]'))
_JSON_NAMES = {"true": True, "false": False, "null": None}


@dataclass(slots=True)
class _GoodCall:
    """A call that was read; it is reported once it is clear what follows it."""

    name: str
    arguments: dict[str, Any]
    position: int
    raw: str
    repaired: list[Flaw]


@dataclass(slots=True)
class _Scanned:
    """A name and the text of the parentheses after it."""

    name: str
    position: int
    text: str | Flaw
    read: dict[str, Any] | Flaw
    awaited: bool
    broken_lines: bool


class PythonicParser(StreamParser):
    """Treats a bracket as a list of calls only if a name and a parenthesis follow."""

    openers: ClassVar[tuple[str, ...]] = ("[",)
    close: ClassVar[str] = "]"
    after: ClassVar[str] = ""
    """The marker after all calls, if there is one."""
    _before = ""

    @functools.cached_property
    def _no_calls(self) -> re.Pattern[str]:
        """After a bracket: text up to the next marker, or to a bracket that may begin calls."""
        markers = (*self.openers, *self.think_marks, *self.silent)
        begins = "".join(re.escape(marker[0]) for marker in markers)
        return re.compile(rf"{_NO_CALL}[^{begins}]*+(?:\[{_NO_CALL}[^{begins}]*+)*+")

    def content(self, text: str) -> None:
        self._before = text[-1:]
        super().content(text)

    def opened(self, marker: str) -> Scan[None]:
        start = self.reader.offset - len(marker)
        if marker != "[":
            yield from self._list(start)
            return
        text = self.reader.arrived(self._no_calls)
        if text is not None:
            self.content(f"[{text}")
            return

        name, char = yield from self._head()
        subscript = self._before.isalnum() or self._before in ("_", ")", "]")
        if not subscript and self._begins(name, char):
            self._before = ""
            yield from self._list(start)
            return
        self.content("[")
        if not subscript and not name and not char:
            message = (
                "The text ends with a bracket. If you meant to make a call, send the "
                "complete call again."
            )
            self.problem("truncated", message, position=start, raw="[", severity="noticed")

    def _head(self) -> Scan[tuple[str, str]]:
        """Return the name after a bracket and the character after that, without reading them."""
        reader = self.reader
        reader.mark()
        yield from reader.spaces()
        name, _ = yield from self._name()
        char = yield from reader.peek()
        reader.rewind()
        return name, char

    def _name(self) -> Scan[tuple[str, bool]]:
        """Read the name of a call and the blanks after it.

        Return also whether ``await`` came before it.
        """
        name = yield from self.reader.run(_WORD)
        blanks = yield from self.reader.spaces()
        if name != "await" or not blanks or not (yield from self.reader.peek()).isidentifier():
            return name, False
        name = yield from self.reader.run(_WORD)
        yield from self.reader.spaces()
        return name, True

    def _begins(self, name: str, char: str) -> bool:
        """Return whether a list of calls begins with this name and the character after it."""
        is_name = bool(_NAME.fullmatch(name))
        if char:
            return char == "(" and (is_name or not name)
        return is_name and any(known.startswith(name) for known in self.tools.names)

    def is_draft(self) -> Scan[bool]:
        name, char = yield from self._head()
        self.reader.unmark()
        return char == "(" and bool(_NAME.fullmatch(name)) and self.tools.knows(name)

    def ended(self) -> None:
        text = "".join(piece for _, piece in self._plain)
        found = _ALMOST.search(text)
        if found:
            message = (
                "A list of calls has no name before its parenthesis; no call was "
                f"made. Write {self.form.example}"
            )
            position = position_in(self._plain, found.start())
            self.problem(
                "stray_marker", message, position=position, raw=found[0], severity="noticed"
            )

    def _list(self, start: int) -> Scan[None]:
        """Read the calls up to the end of the list; report each when the next one begins."""
        reader = self.reader
        calls = 0
        last: _GoodCall | None = None
        while True:
            yield from reader.spaces()
            if (yield from reader.accept(",")):
                continue
            closed = yield from reader.accept(self.close)
            char = yield from reader.peek()
            if closed or not char:
                break

            calls += 1
            reader.mark()
            scanned = yield from self._scan_call()
            sibling = self._swallowed(scanned.read)
            self._flush(last)
            last = None
            if isinstance(scanned.text, Flaw) or sibling:
                if not (yield from self._broken(scanned, sibling)):
                    return
            else:
                last = self._checked(scanned, scanned.text)

        if last:
            yield from self._end_list(last, closed=bool(closed))
        if not calls:
            flaw = Flaw("empty_call", "there is no call in it") if closed else NOT_BEGUN
            self.refuse(flaw, position=start, raw=self.openers[0])

    def _end_list(self, last: _GoodCall, *, closed: bool) -> Scan[None]:
        """Report the last call of a list, unless its text seems to go on after the list."""
        if not closed:
            flaw = Flaw("missing_close", f"the {self.close} after the calls is missing")
            last.repaired.append(flaw)
        elif (yield from self._goes_on()):
            self.refuse(_CUT, position=last.position, raw=last.raw, name=last.name)
            return
        self._flush(last)

    def _scan_call(self) -> Scan[_Scanned]:
        """Read a name and what is in parentheses after it."""
        reader = self.reader
        position = reader.offset
        name, awaited = yield from self._name()
        text: str | Flaw = literal.UNBALANCED
        if (yield from reader.sees("(")):
            text = yield from literal.scan_brackets(reader)
        broken_lines = False
        if isinstance(text, str) and ("\n" in text or "\r" in text):
            text, broken_lines = literal.spelt_breaks(text)
        read = text if isinstance(text, Flaw) else read_arguments(text)
        return _Scanned(
            name=name,
            position=position,
            text=text,
            read=read,
            awaited=awaited,
            broken_lines=broken_lines,
        )

    def _swallowed(self, read: dict[str, Any] | Flaw) -> int:
        """Return where the next call begins inside of one that may be unclosed; 0 if nowhere."""
        unclosed = read is literal.UNBALANCED or (
            isinstance(read, Flaw) and read.kind == "positional_argument"
        )
        if not unclosed or self.reader.exhausted:
            return 0
        return _sibling(self.reader.since_mark())

    def _goes_on(self) -> Scan[bool]:
        """Return whether the string before the end of the list may have been closed too early."""
        if self.close != "]":
            return False
        following = yield from self.reader.upcoming(_REST)
        return following not in ("\n", "[", None)

    def _flush(self, last: _GoodCall | None) -> None:
        if last:
            self.call(
                last.name,
                Loaded(last.arguments),
                position=last.position,
                raw=last.raw,
                repaired=last.repaired,
            )

    def _broken(self, scanned: _Scanned, sibling: int) -> Scan[bool]:
        """Refuse and skip a call with unclosed brackets or quotes; return whether there is more."""
        reader = self.reader
        name = scanned.name
        position = scanned.position
        if sibling:
            reader.waste(position)
            reader.rewind()
            flaw = Flaw("unbalanced", "its ) is missing")
            self.refuse(flaw, position=position, raw=reader.take(sibling), name=name or None)
            return True

        read = reader.offset - position
        yield from reader.run(_LINE)
        text = reader.since_mark()
        if self.after and self.after in text:
            # What comes after the calls is not a part of a string that was left open.
            text = text.partition(self.after)[0]
            read = 0
        size, next_call = self._extent(text, read, position)
        reader.rewind()
        raw = reader.take(next_call or size)

        at_end = not (yield from reader.peek())
        is_cut = at_end and not next_call and size == len(text)
        flaw = _flaw_of_broken(scanned, raw, is_cut=is_cut)
        self.refuse(flaw, position=position, raw=raw, name=name or None)
        if next_call or raw.rstrip().endswith(","):
            return True
        return self.close != "]" and bool(reader.left)

    def _extent(self, text: str, read: int, position: int) -> tuple[int, int]:
        """Return how long a broken call is in the text, and where the next one begins or 0.

        The first ``read`` characters belong to the broken call in any case.
        """
        if self.close == "]":
            end = text.rfind("]") + 1
            size = end if end > read else len(text)
            return size, _salvage(text[:size])
        next_call = 0
        if not self.reader.exhausted:
            lines = _ON_ITS_LINE.finditer(text)
            known = (line.start(1) for line in lines if self.tools.knows(line[1]))
            next_call = next(known, 0)
        self.reader.waste(position)
        return len(text), next_call

    def _checked(self, scanned: _Scanned, text: str) -> _GoodCall | None:
        """Return the call, or refuse it and return None."""
        name = scanned.name
        read = scanned.read if _NAME.fullmatch(name) else _NAMELESS
        raw = self.reader.since_mark()
        if isinstance(read, Flaw):
            self.refuse(read, position=scanned.position, raw=raw, name=name or None)
            return None
        stray, mixed = literal.stray_escapes(text)
        if mixed:
            flaw = Flaw(
                "ambiguous_escape",
                f"a string mixes {stray}, which is not an escape, with valid escapes; "
                "write every literal backslash as \\\\",
            )
            self.refuse(flaw, position=scanned.position, raw=raw, name=name)
            return None

        repaired: list[Flaw] = []
        if stray:
            message = f"{stray} is not an escape; it was read as a literal backslash (write \\\\)"
            repaired.append(Flaw("bad_escape", message))
        if literal.adjacent_strings(text) is not None:
            repaired.append(_JOINED)
        if scanned.awaited:
            repaired.append(_AWAITED)
        if scanned.broken_lines:
            repaired.append(_RAW_BREAK)
        return _GoodCall(name, read, scanned.position, raw, repaired)


def read_arguments(text: str) -> dict[str, Any] | Flaw:
    """Read keyword arguments; ``text`` begins and ends with the parentheses of a call."""
    try:
        tree = literal.parse_python(f"f{text}").body
    except literal.NOT_PARSED:  # whose words depend on the version
        return Flaw(
            "bad_literal", "its arguments are not valid Python: write KEY=VALUE, strings in quotes"
        )
    if not isinstance(tree, ast.Call):
        return Flaw("bad_literal", "it is not a single call")
    if tree.args or any(item.arg is None for item in tree.keywords):
        return Flaw("positional_argument", "write every argument as KEY=VALUE")
    if literal.adjacent_strings(text) == "ambiguous":
        return literal.ADJACENT
    if not text.isascii() and _has_replaced_names(text):
        return Flaw(
            "bad_literal", "its argument names contain characters that Python would replace"
        )

    arguments: dict[str, Any] = {}
    for item in tree.keywords:
        assert item.arg is not None
        if item.arg in arguments:
            return Flaw(
                "duplicate_key", f"it has the argument {item.arg} twice; write every argument once"
            )
        try:
            arguments[item.arg] = literal.evaluate(item.value, _JSON_NAMES)
        except DuplicateKeyError as twice:
            return Flaw(
                "duplicate_key",
                f"its argument {item.arg} has the key {twice} twice; write every key once",
            )
        except (TypeError, ValueError, RecursionError):
            kinds = "string, number, list, dict, True, False or None"
            return Flaw("bad_literal", f"its argument {item.arg} is not a literal ({kinds})")
    return arguments


def _has_replaced_names(text: str) -> bool:
    """Return whether Python would change a name: it reads ｃode as code."""
    names = literal.without_strings(text)
    return unicodedata.normalize("NFKC", names) != names


def _flaw_of_broken(scanned: _Scanned, raw: str, *, is_cut: bool) -> Flaw:
    """Return what is wrong with a call whose brackets or quotes are not closed."""
    if not scanned.name:
        return _NAMELESS
    if scanned.read is TOO_DEEP:
        return TOO_DEEP
    if is_cut and not raw.rstrip().endswith("]"):
        return Flaw("truncated", "a quote or a bracket in it is never closed")
    return literal.UNBALANCED


def _sibling(text: str) -> int:
    """Return where another call begins inside an unclosed one, or 0: ``f(a=1, g(b=2)``."""
    depth = 0
    after_comma = False
    for token in _TOKEN.finditer(text):
        if token.lastgroup == "call":
            if after_comma and depth == 1:
                return token.start()
        elif token.lastgroup:
            continue
        elif token[0] in "'\"":
            return 0
        elif token[0] in "([{":
            depth += 1
        elif token[0] in ")]}":
            depth -= 1
        after_comma = token[0] == ","
    return 0


def _salvage(text: str) -> int:
    """Return where the calls after an unclosed string begin.

    It is 0 if the list is not closed or they are not valid. In a text that was cut off, what looks
    like a call may be part of the string.
    """
    if not text.rstrip().endswith(")]"):
        return 0
    tries = min(_TRIES, 1 + _READ_AGAIN // len(text))
    for match in itertools.islice(_BETWEEN.finditer(text), tries):
        with suppress(*literal.NOT_PARSED):
            literal.parse_python("[" + text[match.end() :])
            return match.end()
    return 0


class PythonFormat(Format):
    """A format in which calls are Python."""

    parser: ClassVar[type[PythonicParser]] = PythonicParser
    call = "{name}({arguments})"
    closing = "]"
    section = ("[", ", ", "]")

    @property
    def example(self) -> str:
        return self.write_section(['TOOL(KEY="VALUE")'])

    def write(self, calls: list[tuple[str, dict[str, Any]]], tools: Toolbox, variant: str) -> str:
        for name, arguments in calls:
            for word in (*name.split("."), *arguments):
                if not word.isidentifier() or not word.isascii() or keyword.iskeyword(word):
                    raise RenderError(
                        f"{self.name} cannot express the name {word!r}: it is not a Python name"
                    )
        return super().write(calls, tools, variant)

    def write_arguments(self, name: str, arguments: dict[str, Any], tools: Toolbox) -> str:
        return ", ".join(f"{key}={value!r}" for key, value in arguments.items())
