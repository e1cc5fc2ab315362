"""What sglang does with DeepSeek V3 and V3.1 calls."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sfusion.fakes.sglang.calls import CallPiece, Extract
from sfusion.fakes.sglang.dialects import Dialect
from sfusion.fakes.sglang.quirk_text import TokenQuirkStream, ToolTable, behind, from_objects

_V3 = re.compile(r"(?s)<｜tool▁call▁begin｜>.*<｜tool▁sep｜>(?P<name>.*)\n```json\n(?P<body>.*)\n```")
_V31 = re.compile(r"(?s)<｜tool▁call▁begin｜>(?P<name>.*)<｜tool▁sep｜>(?P<body>.*?)(?:<｜tool▁call▁end｜>|\Z)")
_BLOCK = re.compile(r"(?s)<｜tool▁call▁begin｜>.*?<｜tool▁call▁end｜>")
_SILENT = re.compile(r"<｜tool▁calls▁begin｜>|<｜tool▁calls▁end｜>|<｜tool▁call▁end｜>")


def _deepseek(pattern: str) -> Callable[[str, ToolTable], Extract]:
    detail = re.compile(pattern, re.DOTALL)

    def read(text: str, table: ToolTable) -> list[CallPiece] | None:
        calls: list[CallPiece] = []
        for block in _BLOCK.findall(text):
            match = detail.search(block)
            try:
                if match is None:
                    return None
                calls += from_objects({"name": match["name"], "parameters": json.loads(match["body"])}, table)
            except ValueError:
                return None
        return calls

    return behind("<｜tool▁calls▁begin｜>", read)


class DeepSeekQuirkStream(TokenQuirkStream):
    """V3 waits for the whole code block, V3.1 does not; a call with unclosed JSON runs into the next one."""

    def __init__(self, tools: Sequence[Any], *, fenced: bool) -> None:
        super().__init__(tools)
        self._fenced = fenced
        self._pattern = _V3 if fenced else _V31

    def feed(self, delta: str) -> Extract:
        self.buffer += delta
        if "<｜tool▁call▁begin｜>" not in self.buffer:
            text, self.buffer = self.buffer, ""
            text = _SILENT.sub("", text)
            return Extract(text.removeprefix("```") if self._fenced else text)
        match = self._pattern.search(self.buffer)
        if match is None:
            return Extract()
        body = match["body"].strip()
        if not body and (self._fenced or match[0].endswith("<｜tool▁call▁end｜>")):
            body = "{}"
        naming = not self.named
        pieces = self._send(match["name"].strip(), body)
        if not naming and pieces and _is_json(body):
            self._next(self._rest(match))
        return Extract("", pieces)

    def _rest(self, match: re.Match[str]) -> str:
        """Return the rest of the buffer after a call with complete JSON."""
        if self._fenced:
            end = "<｜tool▁call▁end｜>"
            rest = self.buffer[match.end() :]
            return rest.removeprefix(end) if rest.startswith(end) else ""
        block = _BLOCK.search(self.buffer)
        return self.buffer[block.end() :] if block else ""


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


DIALECTS = (
    Dialect(
        "deepseekv3",
        parse=_deepseek(
            r"<｜tool▁call▁begin｜>.*<｜tool▁sep｜>(?P<name>.*)\n```json\n(?P<body>.*)\n```<｜tool▁call▁end｜>"
        ),
        stream=partial(DeepSeekQuirkStream, fenced=True),
    ),
    Dialect(
        "deepseekv31",
        parse=_deepseek(r"<｜tool▁call▁begin｜>(?P<name>.*)<｜tool▁sep｜>(?P<body>.*)<｜tool▁call▁end｜>"),
        stream=partial(DeepSeekQuirkStream, fenced=False),
    ),
)
