"""Pythonic calls, as in Llama 4: a Python list of calls with literals as keyword arguments."""

from __future__ import annotations

import ast
import functools
import itertools
import keyword
import re
import unicodedata
from contextlib import suppress
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
_READ_AGAIN = 500_000
"""How many characters to read again, at most, to find the calls after an unclosed string."""
_TOKEN = re.compile(
    r"""(?s)(?P<string>'''.*?'''|\"\"\".*?\"\"\"|'(?:[^'\\\n]|\\.)*+'|"(?:[^"\\\n]|\\.)*+")"""
    r"""|(?P<call>[A-Za-z_][\w.]*+(?=\())|(?P<blank>\s++)|[\w.]++|."""
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
_REST = Markers(("\n", "[", "')]", '")]'))
_JSON_NAMES = {"true": True, "false": False, "null": None}


class PythonicParser(StreamParser):
    """Treats a bracket as a list of calls only if a name and a parenthesis follow."""

    openers = ("[",)
    close: ClassVar[str] = "]"
    after: ClassVar[str] = ""
    """The marker after all calls, if there is one."""
    _before = ""

    @functools.cached_property
    def _no_calls(self) -> re.Pattern[str]:
        """After a bracket: text up to the next marker or to a bracket that may begin a list of
        calls."""
        begins = "".join(
            re.escape(mark[0]) for mark in (*self.openers, *self.think_marks, *self.silent)
        )
        return re.compile(rf"{_NO_CALL}[^{begins}]*+(?:\[{_NO_CALL}[^{begins}]*+)*+")

    def content(self, text: str) -> None:
        self._before = text[-1:]
        super().content(text)

    def opened(self, marker: str) -> Scan[None]:
        start = self.reader.offset - len(marker)
        if marker != "[":
            yield from self._list(start)
            return
        if (text := self.reader.arrived(self._no_calls)) is not None:
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
            self.problem("truncated", message, start, "[", "noticed")

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
        """Read the name of a call and the blanks after it; return also whether ``await`` came
        before it."""
        name = yield from self.reader.run(_WORD)
        blanks = yield from self.reader.spaces()
        if name != "await" or not blanks or not (yield from self.reader.peek()).isidentifier():
            return name, False
        name = yield from self.reader.run(_WORD)
        yield from self.reader.spaces()
        return name, True

    def _begins(self, name: str, char: str) -> bool:
        if not char:
            return bool(_NAME.fullmatch(name)) and any(
                known.startswith(name) for known in self.tools.names
            )
        return char == "(" and (not name or bool(_NAME.fullmatch(name)))

    def is_draft(self) -> Scan[bool]:
        name, char = yield from self._head()
        self.reader.unmark()
        return char == "(" and bool(_NAME.fullmatch(name)) and self.tools.knows(name)

    def ended(self) -> None:
        text = "".join(piece for _, piece in self._plain)
        if found := _ALMOST.search(text):
            message = (
                "A list of calls has no name before its parenthesis; no call was "
                f"made. Write {self.form.example}"
            )
            self.problem(
                "stray_marker",
                message,
                position_in(self._plain, found.start()),
                found[0],
                "noticed",
            )

    def _list(self, start: int) -> Scan[None]:
        reader = self.reader
        closed = False
        calls = 0
        last: tuple[str, dict[str, Any], int, str, list[Flaw]] | None = None
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
            position = reader.offset
            name, awaited = yield from self._name()
            text = (
                (yield from literal.scan_brackets(reader))
                if (yield from reader.sees("("))
                else literal.UNBALANCED
            )
            broken_lines = False
            if isinstance(text, str) and ("\n" in text or "\r" in text):
                text, broken_lines = literal.spelt_breaks(text)
            read = text if isinstance(text, Flaw) else read_arguments(text)
            sibling = 0
            unclosed = read is literal.UNBALANCED or (
                isinstance(read, Flaw) and read.kind == "positional_argument"
            )
            if unclosed and not reader.exhausted:
                sibling = _sibling(reader.since_mark())
            self._flush(last)
            last = None
            if isinstance(text, Flaw) or sibling:
                if not (yield from self._broken(name, position, sibling, deep=read is TOO_DEEP)):
                    return
            else:
                last = self._checked(name, text, read, position, reader.since_mark())
                if last and awaited:
                    last[4].append(
                        Flaw("python_spelling", "there is an await before it, which was ignored")
                    )
                if last and broken_lines:
                    message = (
                        "a string contains a raw line break, which was kept; write \\n instead"
                    )
                    last[4].append(Flaw("raw_control", message))
        if not closed and last:
            last[4].append(Flaw("missing_close", f"the {self.close} after the calls is missing"))
        if (
            closed
            and last
            and self.close == "]"
            and (yield from reader.upcoming(_REST)) not in ("\n", "[", None)
        ):
            # The string may have been closed too early.
            self.refuse(_CUT, position=last[2], raw=last[3], name=last[0])
            last = None
        self._flush(last)
        if not calls:
            flaw = Flaw("empty_call", "there is no call in it") if closed else NOT_BEGUN
            self.refuse(flaw, position=start, raw=self.openers[0])

    def _flush(self, last: tuple[str, dict[str, Any], int, str, list[Flaw]] | None) -> None:
        if last:
            name, arguments, position, raw, repaired = last
            self.call(name, Loaded(arguments), position=position, raw=raw, repaired=repaired)

    def _broken(self, name: str, position: int, sibling: int, *, deep: bool) -> Scan[bool]:
        """Refuse and skip a call with unclosed brackets or quotes; return whether the list goes
        on."""
        reader = self.reader
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
            text, read = text.partition(self.after)[0], 0
        if self.close == "]":
            end = text.rfind("]") + 1
            size = end if end > read else len(text)
            after = _salvage(text[:size])
        else:
            size = len(text)
            known = (
                line.start(1) for line in _ON_ITS_LINE.finditer(text) if self.tools.knows(line[1])
            )
            after = next(known, 0) if not reader.exhausted else 0
            reader.waste(position)
        reader.rewind()
        raw = reader.take(after or size)
        if not name:
            flaw = Flaw("missing_name", "there is no name before its (")
        elif deep:
            flaw = TOO_DEEP
        elif (
            not after
            and size == len(text)
            and not (yield from reader.peek())
            and not raw.rstrip().endswith("]")
        ):
            flaw = Flaw("truncated", "a quote or a bracket in it is never closed")
        else:
            flaw = literal.UNBALANCED
        self.refuse(flaw, position=position, raw=raw, name=name or None)
        return (
            bool(after) or raw.rstrip().endswith(",") or (self.close != "]" and bool(reader.left))
        )

    def _checked(
        self, name: str, text: str, read: dict[str, Any] | Flaw, position: int, raw: str
    ) -> tuple[str, dict[str, Any], int, str, list[Flaw]] | None:
        if not _NAME.fullmatch(name):
            read = Flaw("missing_name", "there is no name before its (")
        if isinstance(read, Flaw):
            self.refuse(read, position=position, raw=raw, name=name or None)
            return None
        stray, mixed = literal.stray_escapes(text)
        if mixed:
            flaw = Flaw(
                "ambiguous_escape",
                f"a string mixes {stray}, which is not an escape, with valid escapes; "
                "write every literal backslash as \\\\",
            )
            self.refuse(flaw, position=position, raw=raw, name=name)
            return None
        repaired: list[Flaw] = []
        if stray:
            message = f"{stray} is not an escape; it was read as a literal backslash (write \\\\)"
            repaired.append(Flaw("bad_escape", message))
        if literal.adjacent_strings(text) is not None:
            repaired.append(
                Flaw(
                    "adjacent_strings",
                    "strings that stand side by side were joined; write a single one",
                )
            )
        return name, read, position, raw, repaired


def read_arguments(text: str) -> dict[str, Any] | Flaw:
    """Read the keyword arguments in ``text``, which begins and ends with the parentheses of a
    call."""
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
    if (
        not text.isascii()
        and unicodedata.normalize("NFKC", names := literal.without_strings(text)) != names
    ):
        # Python would read a name such as ｃode as code.
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
            value = literal.evaluate(item.value, _JSON_NAMES)
        except DuplicateKeyError as twice:
            return Flaw(
                "duplicate_key",
                f"its argument {item.arg} has the key {twice} twice; write every key once",
            )
        except (TypeError, ValueError, RecursionError):
            kinds = "string, number, list, dict, True, False or None"
            return Flaw("bad_literal", f"its argument {item.arg} is not a literal ({kinds})")
        arguments[item.arg] = value
    return arguments


def _sibling(text: str) -> int:
    """Return where another call begins inside an unclosed one, as in ``f(a=1, g(b=2)``; 0 if
    nowhere."""
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
    """Return where the calls after an unclosed string begin, if the list is closed and they are
    valid; 0 otherwise.

    This is not tried in a text that was cut off: what looks like a call may be part of the string.
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
