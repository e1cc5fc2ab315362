"""GLM 4.5: the name, then pairs of ``<arg_key>`` and ``<arg_value>``, all inside ``<tool_call>``."""

from __future__ import annotations

import re
from typing import Any

from sfusion_tools.formats.jsontext import CUT_HEAD, Flaw
from sfusion_tools.formats.rawvalue import CLOSE, NAME, OPEN, RawTextFormat, RawTextParser, TagSpec, read_tag_value
from sfusion_tools.formats.text_reader import Markers, Scan

KEY, KEY_END, VALUE, VALUE_END = "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"
_GAP = re.compile(r"(?:\s|\\n)+")
_HEAD = Markers((KEY, VALUE, CLOSE, OPEN))
_KEY = Markers((KEY_END, KEY, VALUE, CLOSE, OPEN))
_SPEC = TagSpec(VALUE, VALUE_END, (KEY, CLOSE), (OPEN, KEY), _GAP)


class GlmParser(RawTextParser):
    """Reads keys and values; types come from the schema."""

    silent = ("<|observation|>", "<|user|>", "<|endoftext|>")

    def opened(self, marker: str) -> Scan[None]:
        reader = self.reader
        start = reader.offset - len(marker)
        head, edge = yield from reader.text_before(_HEAD)
        lines = [line for line in head.replace("\\n", "\n").split("\n") if line.strip()]
        name = lines[0].strip() if lines else ""
        raw = [marker, head]
        if edge is None:
            self.refuse(CUT_HEAD, position=start, raw=marker + head)
            return
        flaw = self._name_flaw(name, head, edge)
        if flaw:
            yield from self.give_up(flaw, start, raw, name if NAME.fullmatch(name) else None)
            return
        repaired: list[Flaw] = []
        if len(lines) > 1:
            repaired.append(Flaw("stray_text", f"there is text after its name ({lines[1].strip()[:40]!r})"))
        yield from self._arguments(name, start, raw, repaired)

    def _name_flaw(self, name: str, head: str, edge: str) -> Flaw | None:
        if not name:
            if edge == CLOSE:
                return Flaw("empty_call", f"there is nothing between {OPEN} and {CLOSE}")
            return Flaw("missing_name", f"there is no name after {OPEN}")
        if not NAME.fullmatch(name):
            return Flaw("missing_name", f"{name[:40]!r} is not a tool name")
        if edge == CLOSE and "\n" not in head and "\\n" not in head:
            return Flaw("bad_layout", "a call without arguments needs a line break after its name")
        return None

    def _arguments(self, name: str, start: int, raw: list[str], repaired: list[Flaw]) -> Scan[None]:
        reader = self.reader
        arguments: dict[str, Any] = {}
        flaw: Flaw | None = None
        while True:
            gap, edge = yield from reader.text_before(_HEAD)
            raw.append(gap)
            stray = _GAP.sub("", gap)
            if stray and edge is not None:
                repaired.append(Flaw("stray_text", f"there is extra text next to its arguments ({stray[:40]!r})"))
            if edge is None:
                flaw = flaw or Flaw("truncated", f"the text ends before {CLOSE}")
                break
            if edge == OPEN:
                flaw = flaw or Flaw("bad_layout", f"its {CLOSE} is missing")
                break
            raw.append(reader.take(len(edge)))
            if edge == CLOSE:
                break
            if edge == VALUE:
                yield from self.give_up(Flaw("bad_layout", f"there is a {VALUE} without {KEY}"), start, raw, name)
                return
            key, value, fault = yield from self._pair(raw)
            if fault:
                if fault.kind == "truncated":
                    yield from self.skip_rest()
                yield from self.give_up(fault, start, raw, name)
                return
            wrong = self.add_argument(arguments, name, key, value, "argument")
            flaw = flaw or wrong
        if flaw:
            self.refuse(flaw, position=start, raw="".join(raw), name=name)
        else:
            self.call(name, arguments, position=start, raw="".join(raw), repaired=repaired)

    def _pair(self, raw: list[str]) -> Scan[tuple[str, str, Flaw | None]]:
        reader = self.reader
        key, edge = yield from reader.text_before(_KEY)
        raw.append(key)
        if edge != KEY_END:
            kind = "truncated" if edge is None else "bad_layout"
            return "", "", Flaw(kind, f"an {KEY} is not followed by {KEY_END}")
        raw.append(reader.take(len(KEY_END)))
        following = yield from reader.ahead((VALUE,), _GAP)
        if following != VALUE:
            kind = "truncated" if following == "" else "bad_layout"
            return "", "", Flaw(kind, f"its argument {key[:40]} has no {VALUE}")
        yield from reader.run(_GAP)
        raw.append(reader.take(len(VALUE)))
        value = yield from read_tag_value(reader, _SPEC)
        raw.append(reader.since_mark())
        if value.fault == "truncated":
            return "", "", Flaw("truncated", f"the text ends inside its argument {key[:40]}")
        if value.fault:
            message = f"its argument {key[:40]} is not closed by {VALUE_END} and then {KEY} or {CLOSE}"
            return "", "", Flaw("bad_layout", message)
        return key.strip(), value.text, None


class Glm45(RawTextFormat):
    """The format of GLM 4.5 and 4.6."""

    name = "glm45"
    aliases = ("glm",)
    parser = GlmParser
    argument = (KEY, f"{KEY_END}\n{VALUE}", f"{VALUE_END}\n")
    closing = VALUE_END

    def write_call(self, name: str, arguments: str, place: int = 0) -> str:
        return f"{OPEN}{name}\n{arguments}{CLOSE}"
