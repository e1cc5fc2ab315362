"""Kimi K2: a section of calls, each with an id made of the name and a running number."""

from __future__ import annotations

import re

from sfusion_tools.formats.argumenttext import ArgumentTextFormat, SectionParser
from sfusion_tools.formats.jsontext import Flaw, Loaded
from sfusion_tools.formats.text_reader import Scan

SECTION = "<|tool_calls_section_begin|>"
SECTION_END = "<|tool_calls_section_end|>"
CALL = "<|tool_call_begin|>"
ARGUMENTS = "<|tool_call_argument_begin|>"
CALL_END = "<|tool_call_end|>"
_ID = re.compile(r"(?:functions\.)?(?P<name>.*?)(?::(?P<number>[0-9]+))?", re.DOTALL)


class KimiK2Parser(SectionParser):
    """Takes the name from the id.

    If the id is only a number, the tool is the one that takes these arguments, if there is only
    one.
    """

    section = (SECTION, SECTION_END)
    tags = (CALL, CALL_END)
    separator = ARGUMENTS
    heading = "id"
    silent = (SECTION_END, "<|im_end|>", "[EOS]")

    def headed(self, head: str, start: int) -> Scan[None]:
        identity = head.strip()
        match = _ID.fullmatch(identity)
        name = match["name"].strip() if match else identity
        repaired: list[Flaw] = []
        if name.isdigit():
            name = ""
        elif name and (match is None or match["number"] is None):
            repaired.append(Flaw("bad_id", f"its id has no number; write functions.{name}:0"))
        header = f"{CALL}{identity}{ARGUMENTS}"
        yield from self.arguments(
            name or None, start, header, call_id=identity or None, repaired=repaired
        )

    def _nameless(self, read: Loaded, start: int, raw: str) -> None:
        fitting = self.tools.takes(read.value)
        if self.tools.declared and len(fitting) == 1:
            (name,) = fitting
            flaw = Flaw("bad_id", f"its id does not name it; its arguments only fit {name}")
            self.call(name, read, position=start, raw=raw, repaired=[flaw])
        else:
            super()._nameless(read, start, raw)


class KimiK2(ArgumentTextFormat):
    """The format of Kimi K2.

    ``render`` numbers ids from 0, also in a conversation with earlier calls.
    """

    name = "kimi_k2"
    models = "kimi-?k2"
    signs = ("<|tool_calls_section_begin|>",)
    parser = KimiK2Parser
    marks = (re.compile(r"<\|tool_calls?_(?:section_|argument_)?(?:begin|end)\|>", re.IGNORECASE),)
    closing = CALL_END
    section = (SECTION, "", SECTION_END)
    call = f"{CALL}functions.{{name}}:{{number}}{ARGUMENTS}{{arguments}}{CALL_END}"
