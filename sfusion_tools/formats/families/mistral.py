"""Mistral: ``[TOOL_CALLS]`` before a JSON list of calls, or, in the compact form, before a name and its arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sfusion_tools.formats.callobject import (
    DOUBLED,
    SIBLINGS,
    UNESCAPED,
    FoundObject,
    ObjectCallParser,
    ObjectFormat,
    load_arguments,
)
from sfusion_tools.formats.jsontext import CUT_HEAD, NOT_BEGUN, UNCLOSED, Flaw, JsonScan, dump, scan_json
from sfusion_tools.formats.text_reader import Markers, Scan
from sfusion_tools.formats.toolbox import Toolbox

OPEN, ARGS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
_NEXT = Markers((OPEN, "]", *SIBLINGS))
_OPEN = Markers((OPEN,))
_LINE = Markers(("\n", '"}', OPEN))
_NAME = re.compile(r"[\w.:/-]+")
_CLOSERS = re.compile(r"\}+")
_ID = re.compile(r"\w+")


class MistralParser(ObjectCallParser):
    """Reads both forms; a broken element of the list does not end the list."""

    openers = (OPEN,)
    silent = ("</s>",)
    signs = Markers((*SIBLINGS, OPEN))

    def opened(self, marker: str) -> Scan[None]:
        start = self.reader.offset - len(marker)
        yield from self.reader.spaces()
        char = yield from self.reader.peek()
        if char == "[":
            self.reader.take(1)
            yield from self._list(start)
        elif char == "{":
            yield from self._one(start)
        elif char:
            yield from self._compact(start)
        else:
            self.refuse(NOT_BEGUN, position=start, raw=marker)

    def _list(self, start: int) -> Scan[None]:
        reader = self.reader
        elements = 0
        closed = False
        separated = True
        found: list[tuple[FoundObject, list[Flaw]]] = []
        while not closed:
            yield from reader.spaces()
            if (yield from reader.accept(",")):
                separated = True
                continue
            closed = yield from reader.accept("]")
            char = yield from reader.peek()
            if closed or not char or (yield from reader.sees(OPEN)):
                break
            elements += 1
            remarks = [] if separated else [Flaw("bad_separator", "there is no comma before it")]
            separated = False
            position = reader.offset
            reader.mark()
            scan = yield from scan_json(reader)
            if scan.fault:
                closed = yield from self._broken(scan, scan.fault, position)
                separated = True
                continue
            one = FoundObject(scan, position, reader.since_mark())
            if (yield from reader.run(_CLOSERS)):
                remarks.append(Flaw("stray_text", "it is followed by an extra }"))
            if not (yield from self._ends_well()):
                reader.waste(position)
                closed = yield from self._broken(scan, UNESCAPED, position)
            elif remarks and found and found[-1][0].scan.text == scan.text:
                self.refuse(DOUBLED, position=position, raw=one.raw)
            else:
                found.append((one, remarks))
        if not elements:
            kind = "empty_call" if closed else "truncated"
            self.refuse(Flaw(kind, f"there is no call in the list after {OPEN}"), position=start, raw=f"{OPEN} [")
        if not closed and found:
            found[-1][1].append(Flaw("missing_close", "the ] after the calls is missing"))
        nested = Flaw("bad_layout", "its list is nested in another list")
        for one, remarks in found:
            self.report([one], remarks, crowded=nested)

    def _ends_well(self) -> Scan[bool]:
        """Return whether a valid part of the list follows an element."""
        yield from self.reader.spaces()
        char = yield from self.reader.peek()
        return char in ("", ",", "]", "{") or (yield from self.reader.sees(OPEN))

    def _broken(self, scan: JsonScan, fault: Flaw, position: int) -> Scan[bool]:
        """Skip a broken element; return whether that was the end of the list."""
        reader = self.reader
        if (scan.fault or not reader.exhausted) and (yield from self.refuse_up_to_sibling(scan, fault, position)):
            return False
        if scan.truncated:
            yield from self.skip_rest()
            self.refuse(fault, position=position, raw=reader.since_mark())
            return False
        while True:
            edge = yield from reader.before(_NEXT)
            if edge != "]":
                self.refuse(fault, position=position, raw=reader.since_mark())
                return False
            reader.take(1)
            after = yield from reader.peek()
            if after in ("", "\n", " ", "<", "["):
                self.refuse(fault, position=position, raw=reader.since_mark())
                return True

    def _one(self, start: int) -> Scan[None]:
        reader = self.reader
        reader.mark()
        scan = yield from scan_json(reader)
        if scan.fault is None:
            self.report(
                [FoundObject(scan, start, reader.since_mark())], [Flaw("bad_layout", "calls must be in a list")]
            )
            return
        yield from reader.before(_OPEN)
        self.refuse(scan.fault, position=start, raw=reader.since_mark())

    def _compact(self, start: int) -> Scan[None]:
        reader = self.reader
        reader.mark()
        name = yield from reader.run(_NAME)
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
                flaw = Flaw("bad_layout", f"after {OPEN} there is neither a list nor a name with {ARGS}")
            self.refuse(flaw, position=start, raw=OPEN + reader.since_mark(), name=name or None)
            return
        if not marked:
            repaired.append(Flaw("missing_marker", f"{ARGS} is missing between its name and its arguments"))
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
        if isinstance(read, Flaw):
            self.refuse(read, position=start, raw=raw, name=name)
        else:
            repaired.extend(read.repaired)
            self.call(name, read.value, position=start, raw=raw, call_id=call_id, repaired=repaired)


class Mistral(ObjectFormat):
    """The format of Mistral models; ``variant="compact"`` is the newer form."""

    name = "mistral"
    parser = MistralParser
    marks = (re.compile(r"\[TOOL_CALL|TOOL_CALLS\]|\[ARGS\]", re.IGNORECASE),)
    variants = ("list", "compact")
    closing = "]"

    def write(self, calls: list[tuple[str, dict[str, Any]]], tools: Toolbox, variant: str) -> str:
        if variant == "compact":
            return "".join(f"{OPEN}{name}{ARGS}{dump(arguments)}" for name, arguments in calls)
        return super().write(calls, tools, variant)

    def write_section(self, calls: Sequence[str]) -> str:
        return f"{OPEN} [{', '.join(calls)}]"
