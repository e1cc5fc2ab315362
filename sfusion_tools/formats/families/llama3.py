"""Llama 3: JSON objects with ``parameters``, after ``<|python_tag|>`` or without it.

Without the tag they must be at the beginning of the answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from sfusion_tools.formats.callobject import (
    CLOSERS,
    SIBLINGS,
    UNESCAPED,
    FoundObject,
    ObjectCallParser,
    ObjectFormat,
)
from sfusion_tools.formats.jsontext import NOT_BEGUN, TOO_DEEP, Flaw, JsonScan, dump, scan_json
from sfusion_tools.formats.literal import NOT_PYTHON, decode_python, scan_brackets
from sfusion_tools.formats.text_reader import Markers, Scan
from sfusion_tools.formats.toolbox import Toolbox

TAG = "<|python_tag|>"
_ENDS = ("<|eom_id|>", "<|eot_id|>")
_NEXT = Markers((TAG, *_ENDS, *SIBLINGS))
_KEYS = ("name", "type", "function", "parameters", "arguments")
_LONGEST_SIBLING = max(map(len, SIBLINGS))
_BLANKS = re.compile(r"\s+")
_LINE = Markers(("\n", '"}'))
_QUOTED = re.compile("\"|':")
"""A quote, or the end of a key in Python: text with them may be a call that lost its brace."""


@dataclass(slots=True)
class _Objects:
    """What was read of objects that follow each other."""

    found: list[tuple[FoundObject, list[Flaw]]] = field(default_factory=list)
    """The good ones, each with what was repaired in it."""
    refused: int = 0
    strays: list[str] = field(default_factory=list)
    """Text before and between the objects."""
    crowded: Flaw | None = None
    """Set when two of them are not separated as they should be."""

    @property
    def any(self) -> bool:
        return bool(self.found) or self.refused > 0


class Llama3Parser(ObjectCallParser):
    """Reads one object after the other, also in Python's spelling, as sglang does."""

    openers = (TAG,)
    silent = _ENDS
    keys = ("name", "parameters", "id")
    signs = Markers((*SIBLINGS, TAG))

    def begin(self) -> Scan[None]:
        reader = self.reader
        reader.mark()
        gap = yield from reader.spaces()
        start = reader.offset
        if (yield from self._begins()):
            reader.seek(start)
            yield from self._objects(start, tagged=False)
        else:
            reader.seek(start - len(gap))
        reader.unmark()

    def _begins(self) -> Scan[bool]:
        """Read an object up to the colon after its first key; return whether it may be a call."""
        reader = self.reader
        if not (yield from reader.accept("{")):
            return False
        yield from reader.run(_BLANKS)
        if not (yield from self._quote()):
            return False
        for key in _KEYS:
            if (yield from reader.accept(key)):
                break
        else:
            return False
        if not (yield from self._quote()):
            return False
        yield from reader.run(_BLANKS)
        return (yield from reader.accept(":"))

    def _quote(self) -> Scan[bool]:
        return (yield from self.reader.accept('"')) or (yield from self.reader.accept("'"))

    def opened(self, marker: str) -> Scan[None]:
        yield from self._objects(self.reader.offset - len(marker), tagged=True)

    def _objects(self, start: int, *, tagged: bool) -> Scan[None]:
        """Read objects as long as they follow each other, and report them."""
        reader = self.reader
        objects = _Objects()
        goes_on = True
        while goes_on:
            yield from reader.spaces()
            char = yield from reader.peek()
            reader.mark()
            if char == "{":
                goes_on = yield from self._object(objects)
            elif objects.any or not tagged or not char:
                goes_on = False
            else:
                position = reader.offset
                stray, edge = yield from reader.text_before(_NEXT)
                goes_on = edge in SIBLINGS
                if goes_on and _QUOTED.search(stray):
                    self.refuse_left_over([(position, stray)])
                else:
                    objects.strays.append(stray)
        self._report_objects(objects, start)

    def _object(self, objects: _Objects) -> Scan[bool]:
        """Read one object and the separator after it; return whether another one follows."""
        reader = self.reader
        position = reader.offset
        scan = yield from scan_json(reader)
        remarks: list[Flaw] = []
        if scan.found.startswith("'") or scan.found in ("True", "False", "None"):
            scan, remarks = yield from self._python(scan)
        if scan.fault:
            objects.refused += 1
            return (yield from self._broken(scan, scan.fault, position))

        objects.found.append((FoundObject(scan, position, reader.since_mark()), remarks))
        reader.mark()
        if (yield from reader.run(CLOSERS)):
            objects.strays.append(reader.since_mark())
            reader.mark()
        separator = yield from self._separator()
        if separator is None:
            return (yield from self._after_last(objects))
        if separator != ";":
            objects.crowded = Flaw("bad_separator", "several calls must be separated by ;")
        return True

    def _after_last(self, objects: _Objects) -> Scan[bool]:
        """Refuse the last object if it ended inside a string; return whether another follows."""
        if (yield from self.reader.upcoming(_LINE)) != '"}':
            return False
        last, _ = objects.found.pop()
        objects.refused += 1
        edge = yield from self.reader.before(_NEXT)
        self.refuse(UNESCAPED, position=last.position, raw=last.raw)
        return edge in SIBLINGS

    def _separator(self) -> Scan[str | None]:
        """Read the separator between two objects; return None if no other object follows."""
        reader = self.reader
        yield from reader.spaces()
        separator = reader.take(1) if (yield from reader.peek()) in (";", ",") else ""
        yield from reader.spaces()
        ahead = yield from reader.peek(_LONGEST_SIBLING)
        if ahead and any(_may_be(ahead, sibling) for sibling in SIBLINGS):
            return separator
        if ahead or separator != ";":
            reader.rewind()
        return None

    def _python(self, scan: JsonScan) -> Scan[tuple[JsonScan, list[Flaw]]]:
        """Try to read text that is not JSON as a Python dict."""
        reader = self.reader
        if reader.exhausted:
            return scan, []
        reader.rewind()
        text = yield from scan_brackets(reader)
        if text is TOO_DEEP:
            scan.fault = TOO_DEEP
            scan.too_deep = True
        value = decode_python(text) if isinstance(text, str) else NOT_PYTHON
        if isinstance(value, Flaw):
            if value is not NOT_PYTHON:
                scan.fault = value
            reader.waste(scan.start)
            return scan, []
        again = JsonScan(scan.start)
        again.add(dump(value))
        return again, [Flaw("python_spelling", "it is a Python dict, not JSON")]

    def _broken(self, scan: JsonScan, fault: Flaw, position: int) -> Scan[bool]:
        """Skip a broken object; return whether another one follows."""
        if (yield from self.refuse_up_to_sibling(scan, fault, position)):
            return True
        edge = yield from self.reader.before(_NEXT)
        self.refuse(fault, position=position, raw=self.reader.since_mark())
        return edge in SIBLINGS

    def _report_objects(self, objects: _Objects, start: int) -> None:
        stray = "".join(objects.strays)
        if not objects.any:
            flaw = NOT_BEGUN
            if self.reader.left or stray.strip():
                message = f"there is no object with a name and parameters after {TAG}"
                flaw = Flaw("no_call_object", message)
            self.refuse(flaw, position=start, raw=TAG + stray)
            return

        remarks = [self.extra_text(stray)] if stray.strip() else []
        if objects.crowded:
            together = [item for item, _ in objects.found]
            self.report(together, remarks, crowded=objects.crowded)
            return
        for item, repaired in objects.found:
            self.report([item], [*remarks, *repaired])


def _may_be(ahead: str, literal: str) -> bool:
    """Return whether a text begins with the literal, as far as it has arrived."""
    return ahead.startswith(literal) or literal.startswith(ahead)


class Llama3(ObjectFormat):
    """The format of Llama 3.1 to 3.3.

    ``variant="bare"`` leaves out the tag, which only works without content.
    """

    name = "llama3"
    models = r"llama-?3|llama-?4.*json"
    signs = ("<|eot_id|>",)
    signs_are_common = True
    parser = Llama3Parser
    marks = (re.compile(r"<\|python_", re.IGNORECASE),)
    variants = ("python_tag", "bare")
    closing = _ENDS[0]
    section = (TAG, ";", "")

    def write(self, calls: list[tuple[str, dict[str, Any]]], tools: Toolbox, variant: str) -> str:
        text = super().write(calls, tools, variant)
        return text.removeprefix(TAG) if variant == "bare" else text
