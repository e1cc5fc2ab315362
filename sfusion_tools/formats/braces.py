"""Gemma: ``call:NAME{KEY:VALUE,…}`` between two tokens; strings stand between quoting tokens and
have no escapes."""

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

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.flaw = Flaw(kind, message)


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
            yield from reader.spaces()
            if not (yield from reader.sees("{")):
                at_end = not (yield from reader.peek())
                raise _BrokenError(
                    *(
                        (CUT_HEAD.kind, CUT_HEAD.message)
                        if at_end
                        else ("bad_layout", "it has no {")
                    )
                )
            if name is None:
                raise _BrokenError("missing_name", f"there is no name after {_CALL}")
            arguments = yield from self._value()
        except _BrokenError as error:
            yield from self._broken(error.flaw, start, marker, name)
            return
        yield from reader.spaces()
        repaired = []
        if not (yield from reader.accept(self.close)):
            if (yield from reader.peek()) and (
                yield from reader.upcoming(self._edges)
            ) == self.close:
                flaw = Flaw("stray_text", f"there is text between its }} and {self.close}")
                yield from self._broken(flaw, start, marker, name)
                return
            repaired.append(Flaw("missing_close", f"its {self.close} is missing"))
        self.call(
            name,
            Loaded(arguments),
            position=start,
            raw=marker + reader.since_mark(),
            repaired=repaired,
        )

    def _fail_head(self, marker: str) -> Scan[None]:
        text, edge = yield from self.reader.text_before(self._edges)
        if not text.strip() and edge == self.close:
            raise _BrokenError("empty_call", f"there is nothing between {marker} and {self.close}")
        if edge is None and _CALL.startswith(text.strip()):
            raise _BrokenError(NOT_BEGUN.kind, NOT_BEGUN.message)
        raise _BrokenError("no_call_object", f"there is no {_CALL}TOOL after {marker}")

    def _broken(self, flaw: Flaw, start: int, marker: str, name: str | None) -> Scan[None]:
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
        """Read an object with all that is in it; not recursively, because each level would slow
        down a stream."""
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
                if (char := (yield from reader.peek())) in ("{", "["):
                    if len(outer) > ENOUGH:
                        raise _BrokenError(TOO_DEEP.kind, TOO_DEEP.message)
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
        quoted = yield from self.reader.accept(self.quote)
        key = (yield from self._quoted()) if quoted else (yield from self.reader.run(_WORD))
        yield from self.reader.spaces()
        if not quoted and not key:
            yield from self._expect("a key", "}")
        yield from self._expect(":", "")
        if key in found:
            raise _BrokenError(
                "duplicate_key", f"it has the key {dump(key)} twice; write every key once"
            )
        return key

    def _scalar(self) -> Scan[Any]:
        reader = self.reader
        if (yield from reader.accept(self.quote)):
            return (yield from self._quoted())
        word = yield from reader.run(_WORD)
        if not (yield from reader.peek()):
            raise _BrokenError(_CUT.kind, _CUT.message)
        with suppress(ValueError):
            if not isinstance(value := loads(word, strict=True), str):
                return value
        found = dump(word[:40]) if word else f"the place before {(yield from reader.peek())!r}"
        raise _BrokenError(
            "bad_literal", f"{found} in it is neither a text in {self.quote} nor a number"
        )

    def _quoted(self) -> Scan[str]:
        parts: list[str] = []
        edge = yield from self.reader.until(self._string, parts.append)
        if edge is None:
            raise _BrokenError("truncated", "the text ends inside a string")
        if edge != self.quote:
            raise _BrokenError("unbalanced", f"a string in it is not closed by {self.quote}")
        return "".join(parts)

    def _expect(self, char: str, other: str) -> Scan[None]:
        if (yield from self.reader.accept(char)):
            return
        seen = yield from self.reader.peek()
        if not seen:
            raise _BrokenError(_CUT.kind, _CUT.message)
        expected = f"{char} or {other}" if other else char
        raise _BrokenError("bad_literal", f"it has {seen!r} where {expected} is expected")


class BraceFormat(Format):
    """A format of Gemma."""

    parser: ClassVar[type[BraceParser]]
    section = ("", "", "")

    def write_arguments(self, name: str, arguments: dict[str, Any], tools: Toolbox) -> str:
        return self._written(arguments)

    def _written(self, value: Any) -> str:
        if isinstance(value, dict):
            keys = [key if _WORD.fullmatch(key) else self._written(key) for key in value]
            pairs = zip(keys, map(self._written, value.values()), strict=True)
            return "{" + ",".join(f"{key}:{written}" for key, written in pairs) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(self._written, value)) + "]"
        if not isinstance(value, str):
            return dump(value)
        quote = self.parser.quote
        if quote in value:
            raise RenderError(f"{self.name} cannot express a string that contains {quote}")
        return f"{quote}{value}{quote}"
