"""Llama 3: JSON objects with ``parameters``, after ``<|python_tag|>`` or alone at the beginning of
the answer."""

from __future__ import annotations

import re
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
_BLANKS = re.compile(r"\s+")
_LINE = Markers(("\n", '"}'))


class Llama3Parser(ObjectCallParser):
    """Reads one object after the other; also accepts the Python spelling of an object, as sglang
    does."""

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
        """Read the beginning of an object as far as the colon after its first key, if it may be
        that of a call."""
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
        reader = self.reader
        found: list[tuple[FoundObject, list[Flaw]]] = []
        stray: list[str] = []
        crowded: Flaw | None = None
        refused = 0
        while True:
            yield from reader.spaces()
            char = yield from reader.peek()
            reader.mark()
            position = reader.offset
            if char == "{":
                scan = yield from scan_json(reader)
                python: list[Flaw] = []
                if scan.found.startswith("'") or scan.found in ("True", "False", "None"):
                    scan, python = yield from self._python(scan)
                if scan.fault:
                    refused += 1
                    if not (yield from self._broken(scan, scan.fault, position)):
                        break
                    continue
                found.append((FoundObject(scan, position, reader.since_mark()), python))
                reader.mark()
                if (yield from reader.run(CLOSERS)):
                    stray.append(reader.since_mark())
                    reader.mark()
                separator = yield from self._separator()
                if separator is None:
                    if (yield from reader.upcoming(_LINE)) == '"}':
                        one, _ = found.pop()
                        refused += 1
                        edge = yield from reader.before(_NEXT)
                        self.refuse(UNESCAPED, position=one.position, raw=one.raw)
                        if edge in SIBLINGS:
                            continue
                    break
                if separator != ";":
                    crowded = Flaw("bad_separator", "several calls must be separated by ;")
                continue
            if found or refused or not tagged or not char:
                break
            edge = yield from reader.before(_NEXT, stray.append)
            if edge not in SIBLINGS:
                break
        self._report_found(found, "".join(stray), crowded, start, refused, ended=not reader.left)

    def _separator(self) -> Scan[str | None]:
        """Read the separator between two objects; return None and read nothing if no other object
        follows."""
        reader = self.reader
        yield from reader.spaces()
        separator = reader.take(1) if (yield from reader.peek()) in (";", ",") else ""
        yield from reader.spaces()
        ahead = yield from reader.peek(max(map(len, SIBLINGS)))
        if ahead and any(
            ahead.startswith(sibling) or sibling.startswith(ahead) for sibling in SIBLINGS
        ):
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
            scan.fault, scan.too_deep = TOO_DEEP, True
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

    def _report_found(
        self,
        found: list[tuple[FoundObject, list[Flaw]]],
        stray: str,
        crowded: Flaw | None,
        start: int,
        refused: int,
        *,
        ended: bool,
    ) -> None:
        if not found and not refused:
            if ended and not stray.strip():
                flaw = NOT_BEGUN
            else:
                flaw = Flaw(
                    "no_call_object", f"there is no object with a name and parameters after {TAG}"
                )
            self.refuse(flaw, position=start, raw=TAG + stray)
            return
        remarks = [self.extra_text(stray)] if stray.strip() else []
        if crowded:
            self.report([one for one, _ in found], remarks, crowded=crowded)
            return
        for one, python in found:
            self.report([one], [*remarks, *python])


class Llama3(ObjectFormat):
    """The format of Llama 3.1 to 3.3; ``variant="bare"`` leaves out the tag, which only works
    without content."""

    name = "llama3"
    models = r"llama-?3|llama-?4.*json|functionary"
    signs = ("<|eot_id|>",)
    parser = Llama3Parser
    marks = (re.compile(r"<\|python_", re.IGNORECASE),)
    variants = ("python_tag", "bare")
    closing = _ENDS[0]
    section = (TAG, ";", "")

    def write(self, calls: list[tuple[str, dict[str, Any]]], tools: Toolbox, variant: str) -> str:
        text = super().write(calls, tools, variant)
        return text.removeprefix(TAG) if variant == "bare" else text
