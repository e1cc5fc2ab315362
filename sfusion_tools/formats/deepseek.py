"""DeepSeek V3 and V3.1: special tokens around each call and around all of them."""

from __future__ import annotations

from typing import Any

from .argumenttext import SectionParser
from .base import Format, joined
from .jsontext import Flaw, dump
from .reader import Markers, Scan
from .toolbox import Toolbox

__all__ = ["DeepSeekV3", "DeepSeekV31"]

SECTION, SECTION_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
SEPARATOR = "<｜tool▁sep｜>"
_HEAD = Markers((SEPARATOR, SECTION, SECTION_END, CALL, CALL_END))
_LINE = Markers(("\n", SECTION, SECTION_END, CALL, CALL_END))


class DeepSeekV31Parser(SectionParser):
    """Reads ``NAME<｜tool▁sep｜>ARGUMENTS`` between the tokens of a call."""

    openers = (SECTION, CALL)
    drafts = (CALL,)
    silent = (SECTION_END, "<｜end▁of▁sentence｜>")
    section = (SECTION, SECTION_END)
    ends = (CALL_END,)
    edges = Markers((CALL_END, CALL, SECTION, SECTION_END))

    def call_opened(self, start: int) -> Scan[None]:
        reader = self.reader
        head: list[str] = []
        edge = yield from reader.before(_HEAD, head.append)
        if edge != SEPARATOR:
            yield from self._headless("".join(head), edge, start)
            return
        reader.take(len(SEPARATOR))
        yield from self.named("".join(head), start)

    def named(self, head: str, start: int) -> Scan[None]:
        """Read on behind the separator."""
        yield from self.arguments(head.strip() or None, start, f"{CALL}{head}{SEPARATOR}")

    def _headless(self, head: str, edge: str | None, start: int) -> Scan[None]:
        if edge is None:
            self.cut_inside = True
            flaw = Flaw("truncated", "the text ends before its arguments")
        elif head.strip():
            flaw = Flaw("bad_layout", f"{SEPARATOR} is missing between its name and its arguments")
        else:
            flaw = Flaw("empty_call", f"there is nothing between {CALL} and {CALL_END}")
        yield from self.reader.accept(CALL_END)
        self.refuse(flaw, position=start, raw=CALL + head)


class DeepSeekV3Parser(DeepSeekV31Parser):
    """Reads ``function<｜tool▁sep｜>NAME``, a line break and the arguments in a fence."""

    def named(self, head: str, start: int) -> Scan[None]:
        reader = self.reader
        line: list[str] = []
        edge = yield from reader.before(_LINE, line.append)
        name = "".join(line).strip()
        header = f"{CALL}{head}{SEPARATOR}{name}"
        if edge is None:
            self.cut_inside = True
            self.refuse(Flaw("truncated", "the text ends before its arguments"), position=start, raw=header)
            return
        if edge != "\n" or name.startswith(("{", "[")):
            flaw = Flaw("bad_layout", "its name and its arguments do not stand on lines of their own")
            yield from reader.accept(CALL_END)
            self.refuse(flaw, position=start, raw=header, name=head.strip() if head.strip() != "function" else None)
            return
        yield from reader.spaces()
        mended: list[Flaw] = []
        if (yield from reader.accept("```")):
            yield from reader.accept("json")
        else:
            mended.append(Flaw("missing_fence", "its arguments stand in no ```json fence"))
        yield from self.arguments(name or None, start, header, mended=mended, padding="```")


class DeepSeekV31(Format):
    """The format of DeepSeek V3.1 and V3.2-Exp."""

    name = "deepseekv31"
    example = f'{SECTION}{CALL}TOOL{SEPARATOR}{{"KEY": "VALUE"}}{CALL_END}{SECTION_END}'
    parser = DeepSeekV31Parser

    def write(self, calls: list[tuple[str, dict[str, Any]]], content: str, tools: Toolbox, variant: str) -> str:
        blocks = [f"{CALL}{name}{SEPARATOR}{dump(arguments)}{CALL_END}" for name, arguments in calls]
        return joined(content, f"{SECTION}{''.join(blocks)}{SECTION_END}")


class DeepSeekV3(Format):
    """The format of DeepSeek V3-0324."""

    name = "deepseekv3"
    example = f'{SECTION}{CALL}function{SEPARATOR}TOOL\n```json\n{{"KEY": "VALUE"}}\n```{CALL_END}{SECTION_END}'
    parser = DeepSeekV3Parser

    def write(self, calls: list[tuple[str, dict[str, Any]]], content: str, tools: Toolbox, variant: str) -> str:
        blocks = [
            f"{CALL}function{SEPARATOR}{name}\n```json\n{dump(arguments)}\n```{CALL_END}" for name, arguments in calls
        ]
        return joined(content, SECTION + "\n".join(blocks) + SECTION_END)
