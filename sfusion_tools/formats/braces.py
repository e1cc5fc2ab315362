"""Gemma: ``call:NAME{KEY:VALUE,…}`` between two tokens.

Strings stand between quoting tokens and have no escapes.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, ClassVar

from sfusion_tools.errors import RenderError

from .format import Format
from .jsontext import CUT_HEAD, ENOUGH, NOT_BEGUN, TOO_DEEP, Flaw, Loaded, dump, loads
from .rawvalue import NAME
from .streamparser import StreamParser, Tools
from .text_reader import Scan, markers_of
from .toolbox import Toolbox

_CALL = "call:"
_WORD = re.compile(r"[^\s,:{}\[\]<>]+")
_CUT = Flaw("truncated", "the text ends before its last }")


class _BrokenError(Exception):
    """Raised where a value cannot be read."""

    def __init__(self, flaw: Flaw) -> None:
        super().__init__(flaw.message)
        self.flaw = flaw


class BraceParser(StreamParser):
    """Reads one call after each opening token."""

    close: ClassVar[str]
    quote: ClassVar[str]

    def __init__(self, form: Format, tools: Tools = None, *, in_think: bool = False) -> None:
        super().__init__(form, tools, in_think=in_think)
        self._edges = markers_of(*self.openers, self.close)
        # The next call begins inside a string only if that string was not closed.
        self._string = markers_of(self.quote, self.openers[0] + _CALL)

    def opened(self, marker: str) -> Scan[None]:
        reader = self.reader
        start = reader.offset - len(marker)
        reader.mark()
        name: str | None = None
        try:
            yield from reader.spaces()
            if not (yield from reader.accept(_CALL)):
                yield from self._fail_head(marker)
            name = (yield from reader.run(NAME)) or None
            yield from self._expect_brace()
            if name is None:
                raise _BrokenError(Flaw("missing_name", f"there is no name after {_CALL}"))
            arguments = yield from self._value()
        except _BrokenError as error:
            yield from self._broken(error.flaw, start, marker, name)
            return

        yield from reader.spaces()
        repaired: list[Flaw] = []
        if not (yield from reader.accept(self.close)):
            if (yield from self._closes_later()):
                flaw = Flaw("stray_text", f"there is text between its }} and {self.close}")
                yield from self._broken(flaw, start, marker, name)
                return
            repaired.append(Flaw("missing_close", f"its {self.close} is missing"))
        raw = marker + reader.since_mark()
        self.call(name, Loaded(arguments), position=start, raw=raw, repaired=repaired)

    def _fail_head(self, marker: str) -> Scan[None]:
        """Raise why no call begins after the opening token."""
        text, edge = yield from self.reader.text_before(self._edges)
        if not text.strip() and edge == self.close:
            message = f"there is nothing between {marker} and {self.close}"
            raise _BrokenError(Flaw("empty_call", message))
        if edge is None and _CALL.startswith(text.strip()):
            raise _BrokenError(NOT_BEGUN)
        raise _BrokenError(Flaw("no_call_object", f"there is no {_CALL}TOOL after {marker}"))

    def _expect_brace(self) -> Scan[None]:
        """Raise if the arguments do not begin here."""
        yield from self.reader.spaces()
        if (yield from self.reader.sees("{")):
            return
        if (yield from self.reader.peek()):
            raise _BrokenError(Flaw("bad_layout", "it has no {"))
        raise _BrokenError(CUT_HEAD)

    def _closes_later(self) -> Scan[bool]:
        """Return whether the closing token comes after other text, before the next call."""
        if not (yield from self.reader.peek()):
            return False
        edge = yield from self.reader.upcoming(self._edges)
        return edge == self.close

    def _broken(self, flaw: Flaw, start: int, marker: str, name: str | None) -> Scan[None]:
        """Refuse a call and skip the rest of it."""
        reader = self.reader
        if flaw.kind == "truncated":
            yield from self.skip_rest()
        else:
            reader.rewind()
            edge = yield from reader.before(self._edges)
            if edge == self.close:
                reader.take(len(edge))
        self.refuse(flaw, position=start, raw=marker + reader.since_mark(), name=name)

    def _value(self) -> Scan[Any]:
        """Read an object with all that is in it.

        Not recursively: each level would slow down a stream.
        """
        reader = self.reader
        reader.take(1)
        outer: list[tuple[Any, Any]] = []
        found: Any = {}
        while True:
            yield from reader.spaces()
            closing = "}" if isinstance(found, dict) else "]"
            if (yield from reader.accept(closing)):
                if not outer:
                    return found
                value = found
                found, key = outer.pop()
            else:
                if found:
                    yield from self._expect(",", closing)
                    yield from reader.spaces()
                key = (yield from self._key(found)) if closing == "}" else None
                yield from reader.spaces()
                char = yield from reader.peek()
                if char in ("{", "["):
                    if len(outer) > ENOUGH:
                        raise _BrokenError(TOO_DEEP)
                    outer.append((found, key))
                    reader.take(1)
                    found = {} if char == "{" else []
                    continue
                value = yield from self._scalar()
            if isinstance(found, dict):
                found[key] = value
            else:
                found.append(value)

    def _key(self, found: dict[str, Any]) -> Scan[str]:
        """Read a key that the object does not have yet, and the colon after it."""
        quoted = yield from self.reader.accept(self.quote)
        if quoted:
            key = yield from self._quoted()
        else:
            key = yield from self.reader.run(_WORD)
        yield from self.reader.spaces()
        if not quoted and not key:
            yield from self._expect("a key", "}")
        yield from self._expect(":", "")
        if key in found:
            message = f"it has the key {dump(key)} twice; write every key once"
            raise _BrokenError(Flaw("duplicate_key", message))
        return key

    def _scalar(self) -> Scan[Any]:
        """Read a string, a number, true, false or null."""
        reader = self.reader
        if (yield from reader.accept(self.quote)):
            return (yield from self._quoted())
        word = yield from reader.run(_WORD)
        following = yield from reader.peek()
        if not following:
            raise _BrokenError(_CUT)
        with suppress(ValueError):
            value = loads(word, strict=True)
            if not isinstance(value, str):
                return value
        found = dump(word[:40]) if word else f"the place before {following!r}"
        message = f"{found} in it is neither a text in {self.quote} nor a number"
        raise _BrokenError(Flaw("bad_literal", message))

    def _quoted(self) -> Scan[str]:
        """Read the rest of a string."""
        parts: list[str] = []
        edge = yield from self.reader.until(self._string, parts.append)
        if edge is None:
            raise _BrokenError(Flaw("truncated", "the text ends inside a string"))
        if edge != self.quote:
            raise _BrokenError(Flaw("unbalanced", f"a string in it is not closed by {self.quote}"))
        return "".join(parts)

    def _expect(self, char: str, other: str) -> Scan[None]:
        """Read a character; raise if another one comes, naming ``other`` as possible too."""
        if (yield from self.reader.accept(char)):
            return
        seen = yield from self.reader.peek()
        if not seen:
            raise _BrokenError(_CUT)
        expected = f"{char} or {other}" if other else char
        message = f"it has {seen!r} where {expected} is expected"
        raise _BrokenError(Flaw("bad_literal", message))


class BraceFormat(Format):
    """A format of Gemma."""

    parser: ClassVar[type[BraceParser]]
    section = ("", "", "")

    def write_arguments(self, name: str, arguments: dict[str, Any], tools: Toolbox) -> str:
        return self._written(arguments)

    def _key(self, key: str) -> str:
        return key if _WORD.fullmatch(key) else self._written(key)

    def _written(self, value: Any) -> str:
        if isinstance(value, dict):
            pairs = [f"{self._key(key)}:{self._written(inner)}" for key, inner in value.items()]
            return "{" + ",".join(pairs) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(self._written, value)) + "]"
        if not isinstance(value, str):
            return dump(value)
        quote = self.parser.quote
        if quote in value:
            raise RenderError(f"{self.name} cannot express a string that contains {quote}")
        return f"{quote}{value}{quote}"
