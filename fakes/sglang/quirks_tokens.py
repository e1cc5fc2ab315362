"""What sglang's parsers of DeepSeek and Kimi calls send while a text streams: arguments as they are written."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from sfusion.fakes.sglang.quirks_stream import QuirkDelta, QuirkPiece, overlap
from sfusion.fakes.sglang.quirks_whole import ToolTable, kimi_name

__all__ = ["DeepSeekQuirkStream", "KimiQuirkStream"]

_V3 = re.compile(r"(?s)<｜tool▁call▁begin｜>.*<｜tool▁sep｜>(?P<name>.*)\n```json\n(?P<body>.*)\n```")
_V31 = re.compile(r"(?s)<｜tool▁call▁begin｜>(?P<name>.*)<｜tool▁sep｜>(?P<body>.*?)(?:<｜tool▁call▁end｜>|\Z)")
_BLOCK = re.compile(r"(?s)<｜tool▁call▁begin｜>.*?<｜tool▁call▁end｜>")
_SILENT = re.compile(r"<｜tool▁calls▁begin｜>|<｜tool▁calls▁end｜>|<｜tool▁call▁end｜>")
_KIMI = re.compile(
    r"(?s)<\|tool_call_begin\|>\s*(?P<id>[\w.]+:\d+|\d+)\s*<\|tool_call_argument_begin\|>\s*(?P<body>.*?)"
    r"(?P<end><\|tool_call_end\|>|\Z)"
)
_KIMI_SILENT = re.compile(r"<\|tool_calls_section_begin\|>|<\|tool_calls_section_end\|>|<\|tool_call_end\|>")


class _TokenStream:
    """Sends a name once it is known, then whatever is new of its arguments."""

    def __init__(self, tools: Sequence[Any]) -> None:
        self.table = ToolTable.of(tools)
        self.buffer = ""
        self.call = 0
        self.named = False
        self.sent = ""

    def finish(self) -> QuirkDelta:
        return QuirkDelta()

    def _send(self, name: str, body: str) -> list[QuirkPiece]:
        if not self.named:
            self.named = True
            self.sent = ""
            return [QuirkPiece(self.call, name or None, "")]
        news = body[len(self.sent) :] if body.startswith(self.sent) else body
        self.sent += news
        return [QuirkPiece(self.call, None, news)] if news else []

    def _next(self, rest: str) -> None:
        self.buffer = rest
        self.call += 1
        self.named = False


class DeepSeekQuirkStream(_TokenStream):
    """V3 waits for the whole fence, V3.1 does not; a call whose JSON never closes runs into the next one."""

    def __init__(self, tools: Sequence[Any], *, fenced: bool) -> None:
        super().__init__(tools)
        self._fenced = fenced
        self._pattern = _V3 if fenced else _V31

    def feed(self, delta: str) -> QuirkDelta:
        self.buffer += delta
        if "<｜tool▁call▁begin｜>" not in self.buffer:
            text, self.buffer = self.buffer, ""
            text = _SILENT.sub("", text)
            return QuirkDelta(text.removeprefix("```") if self._fenced else text)
        match = self._pattern.search(self.buffer)
        if match is None:
            return QuirkDelta()
        body = match["body"].strip()
        if not body and (self._fenced or match[0].endswith("<｜tool▁call▁end｜>")):
            body = "{}"
        naming = not self.named
        pieces = self._send(match["name"].strip(), body)
        if not naming and pieces and _is_json(body):
            self._next(self._rest(match))
        return QuirkDelta("", pieces)

    def _rest(self, match: re.Match[str]) -> str:
        """What is left of the buffer behind a call whose JSON is complete."""
        if self._fenced:
            end = "<｜tool▁call▁end｜>"
            rest = self.buffer[match.end() :]
            return rest.removeprefix(end) if rest.startswith(end) else ""
        block = _BLOCK.search(self.buffer)
        return self.buffer[block.end() :] if block else ""


class KimiQuirkStream(_TokenStream):
    """Passes arguments on without reading them."""

    def feed(self, delta: str) -> QuirkDelta:
        self.buffer += delta
        if "<|tool_call_begin|>" not in self.buffer and "<|tool_calls_section_begin|>" not in self.buffer:
            held = overlap(self.buffer, "<|tool_calls_section_begin|>")
            text, self.buffer = self.buffer[: len(self.buffer) - held], self.buffer[len(self.buffer) - held :]
            return QuirkDelta(_KIMI_SILENT.sub("", text))
        match = _KIMI.search(self.buffer)
        if match is None:
            return QuirkDelta()
        pieces: list[QuirkPiece] = []
        if not self.named:
            name = kimi_name(match["id"], match["body"], self.table)
            if name is None:
                return QuirkDelta()
            pieces = self._send(name, "")
        pieces += self._send("", match["body"])
        if match["end"]:
            self._next(self.buffer[match.end() :])
        return QuirkDelta("", pieces)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
