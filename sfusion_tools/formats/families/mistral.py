"""Mistral: ``[TOOL_CALLS]`` before a JSON list of calls, or, in the compact form, before a name and
its arguments."""

from __future__ import annotations

import re
from typing import Any

from sfusion_tools.formats.callobject import UNESCAPED, ListParser, ObjectFormat, load_arguments
from sfusion_tools.formats.jsontext import CUT_HEAD, UNCLOSED, Flaw, dump, scan_json
from sfusion_tools.formats.rawvalue import NAME
from sfusion_tools.formats.text_reader import Markers, Scan
from sfusion_tools.formats.toolbox import Toolbox

OPEN, ARGS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
_OPEN = Markers((OPEN,))
_LINE = Markers(("\n", '"}', OPEN))
_ID = re.compile(r"\w+")


class MistralParser(ListParser):
    """Reads a list, or the compact form."""

    openers = (OPEN,)
    silent = ("</s>",)

    def without_list(self, start: int, marker: str) -> Scan[None]:
        """Read the compact form."""
        reader = self.reader
        reader.mark()
        name = yield from reader.run(NAME)
        call_id = None
        repaired: list[Flaw] = []
        if (yield from reader.accept(CALL_ID)):
            call_id = yield from reader.run(_ID)
        marked = yield from reader.accept(ARGS)
        yield from reader.spaces()
        char = yield from reader.peek()
        if not name or (not marked and char != "{"):
            yield from reader.before(_OPEN)
            if name and not char:
                flaw = CUT_HEAD
            else:
                flaw = Flaw(
                    "bad_layout", f"after {OPEN} there is neither a list nor a name with {ARGS}"
                )
            self.refuse(flaw, position=start, raw=OPEN + reader.since_mark(), name=name or None)
            return
        if not marked:
            repaired.append(
                Flaw("missing_marker", f"{ARGS} is missing between its name and its arguments")
            )
        scan = yield from scan_json(reader)
        if scan.fault:
            if scan.truncated and OPEN in reader.since_mark():
                scan.fault = UNCLOSED
                reader.rewind()
            yield from reader.before(_OPEN)
            self.refuse(scan.fault, position=start, raw=OPEN + reader.since_mark(), name=name)
            return
        raw = OPEN + reader.since_mark()
        read = load_arguments(scan)
        if (yield from reader.upcoming(_LINE)) == '"}':
            yield from reader.before(_OPEN)
            read = UNESCAPED
        self.call(name, read, position=start, raw=raw, call_id=call_id, repaired=repaired)


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
