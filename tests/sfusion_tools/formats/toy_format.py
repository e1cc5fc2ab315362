"""A worked example of a new format: ``<call:NAME>`` and JSON arguments up to ``</call>``."""

from __future__ import annotations

import re

from sfusion_tools.formats.argumenttext import ArgumentTextFormat, ArgumentTextParser
from sfusion_tools.formats.jsontext import Flaw
from sfusion_tools.formats.text_reader import Markers, Scan

OPEN, CLOSE = "<call:", "</call>"
_HEAD = Markers((">", OPEN, CLOSE))


class ToyParser(ArgumentTextParser):
    openers = (OPEN,)
    ends = (CLOSE,)
    edges = Markers((CLOSE, OPEN))

    def opened(self, marker: str) -> Scan[None]:
        start = self.reader.offset - len(marker)
        name: list[str] = []
        edge = yield from self.reader.before(_HEAD, name.append)
        header = OPEN + "".join(name)
        if edge != ">":
            flaw = Flaw("bad_layout" if edge else "truncated", "there is no > behind its name")
            self.refuse(flaw, position=start, raw=header)
            return
        self.reader.take(1)
        yield from self.arguments("".join(name).strip() or None, start, header + ">")


class Toy(ArgumentTextFormat):
    name = "toy"
    parser = ToyParser
    marks = (re.compile(r"</?call[:>]", re.IGNORECASE),)
    call = (OPEN, ">", CLOSE)
    closing = CLOSE
