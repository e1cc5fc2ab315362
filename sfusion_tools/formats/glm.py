"""GLM 4.5: the name, then pairs of ``<arg_key>`` and ``<arg_value>``, all inside ``<tool_call>``."""

from __future__ import annotations

import re
from typing import Any

from sfusion_tools.errors import RenderError

from .base import Format, joined
from .jsontext import Flaw
from .rawvalue import read_value, write_value
from .reader import Markers, Scan
from .streamparser import StreamParser
from .tagvalue import TagSpec, read_tag_value
from .toolbox import Toolbox

__all__ = ["Glm45"]

OPEN, CLOSE = "<tool_call>", "</tool_call>"
KEY, KEY_END, VALUE, VALUE_END = "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"
_GAP = re.compile(r"(?:\s|\\n)+")
_HEAD = Markers((KEY, VALUE, CLOSE, OPEN))
_KEY = Markers((KEY_END, KEY, VALUE, CLOSE, OPEN))
_EDGES = Markers((CLOSE, OPEN))
_SPEC = TagSpec(VALUE, VALUE_END, (KEY, CLOSE), (OPEN, KEY), _GAP)
_MARKERS = _SPEC.markers()
_NAME = re.compile(r"[\w.:/-]+")


class GlmParser(StreamParser):
    """Reads keys and values; types come from the schema."""

    openers = (OPEN,)
    silent = ("<|observation|>", "<|user|>", "<|endoftext|>")

    def opened(self, marker: str) -> Scan[None]:
        reader = self.reader
        start = reader.offset - len(marker)
        head: list[str] = []
        edge = yield from reader.before(_HEAD, head.append)
        lines = [line for line in "".join(head).replace("\\n", "\n").split("\n") if line.strip()]
        name = lines[0].strip() if lines else ""
        raw = [marker, *head]
        if edge is None:
            self.refuse(Flaw("truncated", "the text ends before its arguments"), position=start, raw="".join(raw))
            return
        flaw = self._name_flaw(name, "".join(head), edge)
        if flaw:
            yield from self._give_up(flaw, start, raw, name if _NAME.fullmatch(name) else None)
            return
        mended: list[Flaw] = []
        if len(lines) > 1:
            mended.append(Flaw("stray_text", f"there is text behind its name ({lines[1].strip()[:40]!r})"))
        yield from self._arguments(name, start, raw, mended)

    def _name_flaw(self, name: str, head: str, edge: str) -> Flaw | None:
        if not name:
            if edge == CLOSE:
                return Flaw("empty_call", f"there is nothing between {OPEN} and {CLOSE}")
            return Flaw("missing_name", f"there is no name behind {OPEN}")
        if not _NAME.fullmatch(name):
            return Flaw("missing_name", f"{name[:40]!r} is no name of a tool")
        if edge == CLOSE and "\n" not in head and "\\n" not in head:
            return Flaw("bad_layout", "a call without arguments needs a line break behind its name")
        return None

    def _arguments(self, name: str, start: int, raw: list[str], mended: list[Flaw]) -> Scan[None]:
        reader = self.reader
        arguments: dict[str, Any] = {}
        flaw: Flaw | None = None
        while True:
            gap: list[str] = []
            edge = yield from reader.before(_HEAD, gap.append)
            raw.extend(gap)
            stray = _GAP.sub("", "".join(gap))
            if stray and edge is not None:
                mended.append(Flaw("stray_text", f"there is text beside its arguments ({stray[:40]!r})"))
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
                yield from self._give_up(Flaw("bad_layout", f"there is a {VALUE} without {KEY}"), start, raw, name)
                return
            key, value, fault = yield from self._pair(raw)
            if fault:
                if fault.kind == "truncated":
                    yield from self.skip_rest()
                yield from self._give_up(fault, start, raw, name)
                return
            read = read_value(value, self.tools.types(name, key), key)
            if key in arguments:
                flaw = flaw or Flaw("duplicate_key", f"it has the argument {key} twice")
            if isinstance(read, Flaw):
                flaw = flaw or read
            else:
                arguments[key] = read.value
        if flaw:
            self.refuse(flaw, position=start, raw="".join(raw), name=name)
        else:
            self.call(name, arguments, position=start, raw="".join(raw), mended=mended)

    def _pair(self, raw: list[str]) -> Scan[tuple[str, str, Flaw | None]]:
        reader = self.reader
        key: list[str] = []
        edge = yield from reader.before(_KEY, key.append)
        raw.extend(key)
        if edge != KEY_END:
            kind = "truncated" if edge is None else "bad_layout"
            return "", "", Flaw(kind, f"an {KEY} is not followed by {KEY_END}")
        raw.append(reader.take(len(KEY_END)))
        following = yield from reader.ahead((VALUE,), _GAP)
        if following != VALUE:
            kind = "truncated" if following == "" else "bad_layout"
            return "", "", Flaw(kind, f"its argument {''.join(key)[:40]} has no {VALUE}")
        yield from reader.run(_GAP)
        raw.append(reader.take(len(VALUE)))
        value = yield from read_tag_value(reader, _SPEC, _MARKERS)
        raw.append(reader.since_mark())
        if value.fault == "truncated":
            return "", "", Flaw("truncated", f"the text ends inside its argument {''.join(key)[:40]}")
        if value.fault:
            message = f"its argument {''.join(key)[:40]} is not closed by {VALUE_END} and then {KEY} or {CLOSE}"
            return "", "", Flaw("bad_layout", message)
        return "".join(key).strip(), value.text, None

    def _give_up(self, flaw: Flaw, start: int, raw: list[str], name: str | None) -> Scan[None]:
        """Refuse the call and step over the rest of it."""
        edge = yield from self.reader.before(_EDGES, raw.append)
        if edge == CLOSE:
            raw.append(self.reader.take(len(CLOSE)))
        self.refuse(flaw, position=start, raw="".join(raw), name=name)


class Glm45(Format):
    """The format of GLM 4.5 and 4.6."""

    name = "glm45"
    aliases = ("glm",)
    example = f"{OPEN}TOOL\n{KEY}KEY{KEY_END}\n{VALUE}VALUE{VALUE_END}\n{CLOSE}"
    parser = GlmParser

    def write(self, calls: list[tuple[str, dict[str, Any]]], content: str, tools: Toolbox, variant: str) -> str:
        return joined(content, "\n".join(self._block(name, arguments, tools) for name, arguments in calls))

    def _block(self, name: str, arguments: dict[str, Any], tools: Toolbox) -> str:
        if not _NAME.fullmatch(name):
            raise RenderError(f"{self.name} cannot express the name {name!r}")
        pairs = [
            f"{KEY}{key}{KEY_END}\n{VALUE}{write_value(value, tools.types(name, key))}{VALUE_END}\n"
            for key, value in arguments.items()
        ]
        return f"{OPEN}{name}\n{''.join(pairs)}{CLOSE}"
