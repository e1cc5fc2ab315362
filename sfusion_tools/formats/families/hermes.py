"""Hermes and Qwen 2.5/3: a JSON object between ``<tool_call>`` and ``</tool_call>``, one pair of tags per call."""

from __future__ import annotations

from collections.abc import Sequence

from sfusion_tools.formats.callobject import UNESCAPED, FoundObject, ObjectCallParser, ObjectFormat
from sfusion_tools.formats.jsontext import NOT_BEGUN, UNCLOSED, Flaw, scan_json
from sfusion_tools.formats.rawvalue import CLOSE, MARK, OPEN
from sfusion_tools.formats.text_reader import Markers, Scan

_EDGES = Markers((OPEN, CLOSE))
_NEXT = Markers((OPEN, CLOSE, "{", "["))


class HermesParser(ObjectCallParser):
    """Accepts every valid object inside a tag, whatever else the tag contains."""

    openers = (OPEN,)
    silent = ("<|im_end|>", "<|endoftext|>")

    def opened(self, marker: str) -> Scan[None]:
        reader = self.reader
        start = reader.offset - len(marker)
        found: list[FoundObject] = []
        strays: list[str] = []
        refused = 0
        while True:
            yield from reader.spaces()
            place = reader.offset
            reader.mark()
            if closed := (yield from reader.accept(CLOSE)):
                break
            char = yield from reader.peek()
            if not char or (yield from reader.sees(OPEN)):
                break
            if char not in "{[":
                yield from reader.before(_NEXT, strays.append)
                continue
            scan = yield from scan_json(reader)
            if scan.fault is None:
                found.append(FoundObject(scan, place, reader.since_mark()))
                continue
            refused += 1
            if scan.truncated and CLOSE not in reader.since_mark():
                yield from self.skip_rest()
                self.refuse(scan.fault, position=start, raw=marker + reader.since_mark())
                break
            fault = UNCLOSED if scan.truncated else scan.fault
            reader.rewind()
            skipped, _ = yield from reader.text_before(_EDGES)
            self.refuse(fault, position=start, raw=marker + skipped)
        self._report_found(found, refused, "".join(strays), start, closed=closed)

    def _report_found(self, found: list[FoundObject], refused: int, stray: str, start: int, *, closed: bool) -> None:
        ended = not closed and not self.reader.left
        if not found and not refused:
            if stray.strip():
                flaw = Flaw("no_call_object", f"there is no object with a name and arguments after {OPEN}")
            elif ended:
                flaw = NOT_BEGUN
            else:
                flaw = Flaw("empty_call", f"there is nothing between {OPEN} and {CLOSE}")
            self.refuse(flaw, position=start, raw=f"{OPEN}{stray}")
            return
        if '"' in stray:
            for one in found:
                self.refuse(UNESCAPED, position=one.position, raw=one.raw)
            return
        remarks = [self.extra_text(stray)] if stray.strip(" \n,;") else []
        if not closed:
            remarks.append(Flaw("missing_close", f"its {CLOSE} is missing"))
        self.report(found, remarks, crowded=Flaw("several_in_one_tag", f"every call needs its own {OPEN} and {CLOSE}"))


class Hermes(ObjectFormat):
    """The format of Hermes models."""

    name = "hermes"
    parser = HermesParser
    marks = (MARK,)
    tag = (f"{OPEN}\n", f"\n{CLOSE}")
    closing = CLOSE

    def write_section(self, calls: Sequence[str]) -> str:
        return "\n".join(calls)


class Qwen25(Hermes):
    """The format of Qwen 2.5 and 3; unlike sglang's parser, this one does not require the line breaks."""

    name = "qwen25"
    aliases = ("qwen",)
