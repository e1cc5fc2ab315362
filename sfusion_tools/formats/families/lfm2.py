"""LFM2: a list between two markers, of calls in Python or of JSON objects.

The models write Python, and JSON where the system message asks for it. They are known to write a
list once more after the markers; it is the same calls.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sfusion_tools.formats.calllist import ListParser
from sfusion_tools.formats.callobject import DOUBLED, SIBLINGS
from sfusion_tools.formats.format import Format
from sfusion_tools.formats.jsontext import NOT_BEGUN, Flaw, Loaded, dump
from sfusion_tools.formats.pythonic import PythonFormat, PythonicParser
from sfusion_tools.formats.streamparser import StreamParser, Tools
from sfusion_tools.formats.text_reader import Scan
from sfusion_tools.formats.toolbox import Toolbox

START = "<|tool_call_start|>"
END = "<|tool_call_end|>"


class _ObjectsParser(ListParser):
    """Reads JSON objects for another parser."""

    openers = (START,)
    close = END

    def __init__(self, form: Format, owner: StreamParser) -> None:
        super().__init__(form, owner.tools)
        self.reader = owner.reader
        self._owner = owner

    def call(self, name: str | None, read: Loaded | Flaw, **found: Any) -> None:
        self._owner.call(name, read, **found)

    def refuse(self, flaw: Flaw, **found: Any) -> None:
        self._owner.refuse(flaw, **found)


class Lfm2Parser(PythonicParser):
    """Reads Python or JSON between the markers, and Python without them."""

    openers = (START, "[")
    drafts = ("[", START)
    silent = (END, "<|im_end|>")
    enclosing = (START, END)
    after = END

    def __init__(self, form: Format, tools: Tools = None, *, in_think: bool = False) -> None:
        super().__init__(form, tools, in_think=in_think)
        self._objects = _ObjectsParser(form, self)
        self._inside = False
        self._handled_before = 0
        """Calls that were returned or refused before the last opening marker."""
        self._made: set[str] = set()
        """The texts of the calls between markers."""

    def opened(self, marker: str) -> Scan[None]:
        if marker != START:
            yield from super().opened(marker)
            return
        self.interrupt()
        self._inside = True
        self._handled_before = self._handled
        if (yield from self._sees_objects()):
            yield from self._objects.opened(marker)
            if self.reader.since_mark().endswith(END):
                self._enclose(END)
                self.passed(END)

    def _sees_objects(self) -> Scan[bool]:
        """Return whether JSON follows the opening marker."""
        reader = self.reader
        reader.mark()
        yield from reader.spaces()
        if (yield from reader.accept("[")):
            yield from reader.spaces()
        char = yield from reader.peek()
        reader.rewind()
        reader.unmark()
        return char == "{"

    def is_draft(self) -> Scan[bool]:
        is_object = bool((yield from self.reader.ahead(SIBLINGS)))
        return is_object or (yield from super().is_draft())

    def passed(self, marker: str) -> None:
        if marker == END:
            self._inside = False

    def ended(self) -> None:
        if self._inside and self._handled == self._handled_before:
            position = self.reader.offset
            text = "".join(piece for _, piece in self._plain[self._last_mark :])
            self.refuse(NOT_BEGUN, position=position - len(text), raw=START + text)
        super().ended()

    def call(
        self,
        name: str | None,
        read: Loaded | Flaw,
        *,
        position: int,
        raw: str,
        call_id: str | None = None,
        repaired: Sequence[Flaw] = (),
    ) -> None:
        if self._inside:
            self._made.add(raw)
        elif raw in self._made:
            self.refuse(DOUBLED, position=position, raw=raw, name=name)
            return
        super().call(name, read, position=position, raw=raw, call_id=call_id, repaired=repaired)


class Lfm2(PythonFormat):
    """The format of LFM2 models; ``variant="json"`` writes objects in place of Python."""

    name = "lfm2"
    models = "lfm-?2"
    signs = ("<|im_start|>", "<|tool_")
    parser = Lfm2Parser
    marks = (re.compile(r"<\|tool_call_(?:start|end)\|>", re.IGNORECASE),)
    variants = ("python", "json")
    section = (f"{START}[", ", ", f"]{END}")

    def write(self, calls: list[tuple[str, dict[str, Any]]], tools: Toolbox, variant: str) -> str:
        if variant == "json":
            return self.write_section(
                [dump({"name": name, "arguments": arguments}) for name, arguments in calls]
            )
        return super().write(calls, tools, variant)
