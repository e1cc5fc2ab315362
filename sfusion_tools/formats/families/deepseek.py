"""DeepSeek V3: special tokens around each call and around all calls.

The arguments are in a code block.
"""

from __future__ import annotations

import re

from sfusion_tools.formats.argumenttext import ArgumentTextFormat, SectionParser
from sfusion_tools.formats.jsontext import CUT_HEAD, Flaw
from sfusion_tools.formats.text_reader import Markers, Scan

SECTION = "<｜tool▁calls▁begin｜>"
SECTION_END = "<｜tool▁calls▁end｜>"
CALL = "<｜tool▁call▁begin｜>"
CALL_END = "<｜tool▁call▁end｜>"
SEPARATOR = "<｜tool▁sep｜>"
MARK = re.compile(
    r"<[｜|]tool[▁_]calls?[▁_](?:begin|end)[｜|]>|<[｜|]tool[▁_]sep[｜|]>", re.IGNORECASE
)
_LINE = Markers(("\n", SECTION, SECTION_END, CALL, CALL_END))


class DeepSeekV3Parser(SectionParser):
    """Reads ``function<｜tool▁sep｜>NAME``, a line break and the arguments in a code block."""

    section = (SECTION, SECTION_END)
    tags = (CALL, CALL_END)
    separator = SEPARATOR
    silent = (SECTION_END, "<｜end▁of▁sentence｜>")

    def headed(self, head: str, start: int) -> Scan[None]:
        reader = self.reader
        line, edge = yield from reader.text_before(_LINE)
        name = line.strip()
        header = f"{CALL}{head}{SEPARATOR}{name}"
        if edge is None:
            self.cut_inside = True
            self.refuse(CUT_HEAD, position=start, raw=header)
            return
        if edge != "\n" or name.startswith(("{", "[")):
            flaw = Flaw("bad_layout", "its name and its arguments must be on separate lines")
            yield from reader.accept(CALL_END)
            # The name may stand where "function" belongs.
            shown = head.strip()
            name_in_head = shown if shown != "function" else None
            self.refuse(flaw, position=start, raw=header, name=name_in_head)
            return

        yield from reader.spaces()
        repaired: list[Flaw] = []
        if (yield from reader.accept("```")):
            yield from reader.accept("json")
        else:
            repaired.append(Flaw("missing_fence", "its arguments are not in a ```json block"))
        yield from self.arguments(name or None, start, header, repaired=repaired, padding="```")


class DeepSeekV3(ArgumentTextFormat):
    """The format of DeepSeek V3-0324."""

    name = "deepseekv3"
    models = "deepseek-?(v3|r1)"
    signs = (SECTION, "```json")
    parser = DeepSeekV3Parser
    marks = (MARK,)
    call = f"{CALL}function{SEPARATOR}{{name}}\n```json\n{{arguments}}\n```{CALL_END}"
    section = (SECTION, "\n", SECTION_END)
    closing = CALL_END
