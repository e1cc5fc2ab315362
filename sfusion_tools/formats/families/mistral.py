"""Mistral: ``[TOOL_CALLS]`` before a JSON list of calls.

In the compact form it stands before a name and its arguments.
"""

from __future__ import annotations

import re
from typing import Any

from sfusion_tools.formats.calllist import ListParser
from sfusion_tools.formats.callobject import UNESCAPED, ObjectFormat, load_arguments
from sfusion_tools.formats.jsontext import CUT_HEAD, UNCLOSED, Flaw, dump, scan_json
from sfusion_tools.formats.rawvalue import NAME
from sfusion_tools.formats.text_reader import Markers, Scan
from sfusion_tools.formats.toolbox import Toolbox

OPEN = "[TOOL_CALLS]"
ARGS = "[ARGS]"
CALL_ID = "[CALL_ID]"
_OPEN = Markers((OPEN,))
_LINE = Markers(("\n", '"}', OPEN))
_ID = re.compile(r"\w+")
_NEITHER = Flaw("bad_layout", f"after {OPEN} there is neither a list nor a name with {ARGS}")
_UNMARKED = Flaw("missing_marker", f"{ARGS} is missing between its name and its arguments")


class MistralParser(ListParser):
    """Reads a list, or the compact form."""

    openers = (OPEN,)
    silent = ("</s>",)

    def without_list(self, start: int, marker: str) -> Scan[None]:
        """Read the compact form."""
        reader = self.reader
        reader.mark()
        name = yield from reader.run(NAME)
        call_id: str | None = None
        if (yield from reader.accept(CALL_ID)):
            call_id = yield from reader.run(_ID)
        marked = yield from reader.accept(ARGS)
        yield from reader.spaces()
        char = yield from reader.peek()
        if not name or (not marked and char != "{"):
            flaw = CUT_HEAD if name and not char else _NEITHER
            yield from self._refuse_compact(flaw, start, name)
            return

        scan = yield from scan_json(reader)
        if scan.fault:
            flaw = scan.fault
            if scan.truncated and OPEN in reader.since_mark():
                flaw = UNCLOSED
                reader.rewind()
            yield from self._refuse_compact(flaw, start, name)
            return

        raw = OPEN + reader.since_mark()
        read = load_arguments(scan)
        if (yield from reader.upcoming(_LINE)) == '"}':
            yield from reader.before(_OPEN)
            read = UNESCAPED
        repaired = [] if marked else [_UNMARKED]
        self.call(name, read, position=start, raw=raw, call_id=call_id, repaired=repaired)

    def _refuse_compact(self, flaw: Flaw, start: int, name: str) -> Scan[None]:
        """Refuse a call and skip it up to the next marker."""
        yield from self.reader.before(_OPEN)
        raw = OPEN + self.reader.since_mark()
        self.refuse(flaw, position=start, raw=raw, name=name or None)


class Mistral(ObjectFormat):
    """The format of Mistral models; ``variant="compact"`` is the newer form."""

    name = "mistral"
    models = "mistral|ministral|devstral|magistral|codestral"
    signs = ("[TOOL_CALLS]",)
    parser = MistralParser
    marks = (re.compile(r"\[TOOL_CALL|TOOL_CALLS\]|\[ARGS\]", re.IGNORECASE),)
    variants = ("list", "compact")
    closing = "]"
    section = (f"{OPEN} [", ", ", "]")

    def write(self, calls: list[tuple[str, dict[str, Any]]], tools: Toolbox, variant: str) -> str:
        if variant == "compact":
            return "".join(f"{OPEN}{name}{ARGS}{dump(arguments)}" for name, arguments in calls)
        return super().write(calls, tools, variant)
