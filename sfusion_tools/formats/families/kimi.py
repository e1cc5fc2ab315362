"""Kimi K2: a section of calls, each with an id made of the name and a running number."""

from __future__ import annotations

import re

from sfusion_tools.formats.argumenttext import ArgumentTextFormat, SectionParser
from sfusion_tools.formats.jsontext import Flaw, Loaded
from sfusion_tools.formats.text_reader import Markers, Scan

SECTION, SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL, ARGUMENTS, CALL_END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
_HEAD = Markers((ARGUMENTS, CALL, CALL_END, SECTION, SECTION_END))
_ID = re.compile(r"(?:functions\.)?(?P<name>.*?)(?::(?P<number>[0-9]+))?", re.DOTALL)


class KimiK2Parser(SectionParser):
    """Takes the name from the id; if the id is only a number, from the arguments, if they fit only one tool."""

    openers = (SECTION, CALL)
    drafts = (CALL,)
    silent = (SECTION_END, "<|im_end|>", "[EOS]")
    section = (SECTION, SECTION_END)
    ends = (CALL_END,)
    edges = Markers((CALL_END, CALL, SECTION, SECTION_END))

    def call_opened(self, start: int) -> Scan[None]:
        reader = self.reader
        head: list[str] = []
        edge = yield from reader.before(_HEAD, head.append)
        identity = "".join(head).strip()
        if edge == ARGUMENTS:
            reader.take(len(ARGUMENTS))
            yield from self._identified(identity, start)
            return
        if edge is None:
            self.cut_inside = True
            flaw = Flaw("truncated", "the text ends before its arguments")
        elif identity:
            flaw = Flaw("bad_layout", f"{ARGUMENTS} is missing between its id and its arguments")
        else:
            flaw = Flaw("empty_call", f"there is nothing between {CALL} and {CALL_END}")
        yield from reader.accept(CALL_END)
        self.refuse(flaw, position=start, raw=CALL + identity)

    def _identified(self, identity: str, start: int) -> Scan[None]:
        match = _ID.fullmatch(identity)
        name = match["name"].strip() if match else identity
        repaired: list[Flaw] = []
        if name.isdigit():
            name = ""
        elif name and (match is None or match["number"] is None):
            repaired.append(Flaw("bad_id", f"its id has no number; write functions.{name}:0"))
        header = f"{CALL}{identity}{ARGUMENTS}"
        yield from self.arguments(name or None, start, header, call_id=identity or None, repaired=repaired)

    def _nameless(self, read: Loaded, start: int, raw: str) -> None:
        fitting = self.tools.takes(read.value)
        if self.tools.declared and len(fitting) == 1:
            message = f"its id does not name it; its arguments only fit {fitting[0]}"
            self.call(
                fitting[0], read.value, position=start, raw=raw, repaired=[Flaw("bad_id", message), *read.repaired]
            )
        else:
            super()._nameless(read, start, raw)


class KimiK2(ArgumentTextFormat):
    """The format of Kimi K2. ``render`` numbers ids from 0, also in a conversation with earlier calls."""

    name = "kimi_k2"
    parser = KimiK2Parser
    marks = (re.compile(r"<\|tool_calls?_(?:section_|argument_)?(?:begin|end)\|>", re.IGNORECASE),)
    closing = CALL_END

    def write_call(self, name: str, arguments: str, place: int = 0) -> str:
        return f"{CALL}functions.{name}:{place}{ARGUMENTS}{arguments}{CALL_END}"
