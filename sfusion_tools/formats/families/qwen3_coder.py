"""Qwen3-Coder: ``<function=NAME>`` with raw ``<parameter=KEY>`` values, inside ``<tool_call>``."""

from __future__ import annotations

import re
from typing import Any

from sfusion_tools.formats.jsontext import NOT_BEGUN, Flaw
from sfusion_tools.formats.rawvalue import CLOSE, NAME, OPEN, RawTextFormat, RawTextParser, TagSpec, read_tag_value
from sfusion_tools.formats.text_reader import Markers, Scan

FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"
_EDGES = Markers((CLOSE, OPEN, FUNCTION))
_TAGS = Markers((CLOSE, OPEN, FUNCTION, FUNCTION_END, PARAMETER, PARAMETER_END))
_HEADER = Markers((">", "\n", "<"))
_IMPLICIT = re.compile(rf"\n(?={PARAMETER}[^<>\n]+>|{FUNCTION_END}\s*(?:{CLOSE}|\Z))")
_SPEC = TagSpec(PARAMETER, PARAMETER_END, (PARAMETER, FUNCTION_END), (OPEN,), implicit=_IMPLICIT)


class Qwen3CoderParser(RawTextParser):
    """Reads functions one by one; types come from the schema."""

    silent = ("<|im_end|>", "<|endoftext|>")

    def opened(self, marker: str) -> Scan[None]:
        reader = self.reader
        start = reader.offset - len(marker)
        functions = 0
        while True:
            text, edge = yield from reader.text_before(_EDGES)
            if edge == FUNCTION:
                place = reader.offset
                reader.take(len(FUNCTION))
                functions += 1
                if not (yield from self._function(place, text.strip())):
                    return
                continue
            if not functions:
                if text.strip():
                    flaw = Flaw("no_call_object", f"there is no {FUNCTION}TOOL> after {OPEN}")
                elif edge is None:
                    flaw = NOT_BEGUN
                else:
                    flaw = Flaw("empty_call", f"there is nothing between {OPEN} and {CLOSE}")
                self.refuse(flaw, position=start, raw=OPEN + text)
            elif text.strip() and edge == CLOSE:
                message = f"There is text after {FUNCTION_END}, which was ignored."
                self.problem("stray_text", message, reader.offset, text.strip(), "noticed")
            elif edge != CLOSE:
                message = f"A {CLOSE} is missing. The call before it was complete and was made."
                self.problem("missing_close", message, reader.offset, text.strip(), "noticed")
            yield from reader.accept(CLOSE)
            return

    def _function(self, start: int, stray: str) -> Scan[bool]:
        """Read one function; return False if the rest of the tag had to be skipped."""
        reader = self.reader
        raw = [FUNCTION]
        name = yield from self._header(raw)
        flaw: Flaw | None = None
        if name is None or not NAME.fullmatch(name):
            kind = "missing_name" if (yield from reader.peek()) else "truncated"
            flaw = Flaw(kind, f"{FUNCTION} is not followed by the name of a tool and >")
            yield from self.give_up(flaw, start, raw, None)
            return False
        repaired = [Flaw("stray_text", f"there is text before it ({stray[:40]!r})")] if stray else []
        arguments: dict[str, Any] = {}
        while True:
            gap = yield from reader.spaces()
            raw.append(gap)
            if (yield from reader.accept(FUNCTION_END)):
                raw.append(FUNCTION_END)
                break
            if not (yield from reader.accept(PARAMETER)):
                char = yield from reader.peek()
                kind = "bad_layout" if char else "truncated"
                flaw = flaw or Flaw(kind, f"there is neither {PARAMETER}KEY> nor {FUNCTION_END} where one is expected")
                yield from self.give_up(flaw, start, raw, name)
                return False
            raw.append(PARAMETER)
            key = yield from self._header(raw)
            if not key:
                kind = "bad_layout" if (yield from reader.peek()) else "truncated"
                flaw = flaw or Flaw(kind, f"{PARAMETER} is not followed by a name and >")
                yield from self.give_up(flaw, start, raw, name)
                return False
            value = yield from read_tag_value(reader, _SPEC)
            raw.append(reader.since_mark())
            if value.fault:
                if value.fault == "truncated":
                    raw.append((yield from self.skip_rest()))
                    fault = Flaw("truncated", f"the text ends inside its parameter {key}")
                else:
                    fault = Flaw("bad_layout", f"its parameter {key} is not closed by {PARAMETER_END}")
                yield from self.give_up(flaw or fault, start, raw, name)
                return False
            if value.implied:
                repaired.append(Flaw("missing_close", f"the {PARAMETER_END} of {key} is missing"))
            text = _without_layout(value.text, crlf="\r\n" in gap)
            wrong = self.add_argument(arguments, name, key, text, "parameter")
            flaw = flaw or wrong
        if (yield from reader.upcoming(_TAGS)) in (FUNCTION_END, PARAMETER, PARAMETER_END):
            flaw = flaw or Flaw(
                "bad_layout", f"it goes on after {FUNCTION_END}, so a value may contain tags of the format"
            )
        if flaw:
            self.refuse(flaw, position=start, raw="".join(raw), name=name)
        else:
            self.call(name, arguments, position=start, raw="".join(raw), repaired=repaired)
        return True

    def _header(self, raw: list[str]) -> Scan[str | None]:
        """Read a name and its >; return None if there is none."""
        text, edge = yield from self.reader.text_before(_HEADER)
        raw.append(text)
        if edge != ">":
            return None
        raw.append(self.reader.take(1))
        return text.strip()


def _without_layout(text: str, *, crlf: bool) -> str:
    """Remove the line break that the layout puts at either end of a value."""
    crlf = crlf or text.startswith("\r\n")
    inner = text.removeprefix("\r\n" if text.startswith("\r\n") else "\n")
    # A lone \r before the last line break belongs to the value if the layout does not use it.
    return inner.removesuffix("\r\n" if crlf and inner.endswith("\r\n") else "\n")


class Qwen3Coder(RawTextFormat):
    name = "qwen3_coder"
    parser = Qwen3CoderParser
    argument = (PARAMETER, ">\n", f"\n{PARAMETER_END}\n")
    closing = CLOSE

    def write_call(self, name: str, arguments: str, place: int = 0) -> str:
        return f"{OPEN}\n{FUNCTION}{name}>\n{arguments}{FUNCTION_END}\n{CLOSE}"
