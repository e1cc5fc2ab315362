"""What sglang does with Mistral calls."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from sfusion.fakes.sglang.calls import CallPiece, Extract, arguments_text
from sfusion.fakes.sglang.dialects import Dialect
from sfusion.fakes.sglang.quirk_json import Grammar, JsonQuirkStream
from sfusion.fakes.sglang.quirk_text import ToolTable, from_objects

_COMPACT = re.compile(r"\[TOOL_CALLS\]?\s*([^\s{]+?)\s*\[ARGS\]?\s*(?=[{\[])")


def _parse(text: str, table: ToolTable) -> Extract:
    if "[TOOL_CALLS" not in text:
        return Extract(text)
    before, _, _ = text.partition("[TOOL_CALLS")
    compact = list(_COMPACT.finditer(text))
    if compact:
        return _parse_compact(text, compact, table)
    opening = text.find("[TOOL_CALLS] [")
    if opening < 0:
        return Extract(before.strip())
    begin = opening + len("[TOOL_CALLS] ")
    end = _array_end(text, begin)
    after = text[end:] if end else ""
    content = " ".join(part for part in (text[:opening].strip(), after.strip()) if part)
    try:
        found = json.loads(text[begin : end or len(text)])
    except ValueError:
        return Extract(content)
    return Extract(content, from_objects(found, table))


def _parse_compact(text: str, matches: Sequence[re.Match[str]], table: ToolTable) -> Extract:
    decoder = json.JSONDecoder()
    content = text[: matches[0].start()]
    calls: list[CallPiece] = []
    end = 0
    for match in matches:
        try:
            value, size = decoder.raw_decode(text[match.end() :])
        except ValueError:
            return Extract(content.strip(), calls)
        end = match.end() + size
        calls += from_objects({"name": match[1], "arguments": value}, table)
    tail = text[end:].strip()
    return Extract(" ".join(part for part in (content.strip(), tail) if part), calls)


def _array_end(text: str, begin: int) -> int:
    """Return the position after the bracket that closes the one at ``begin``, ignoring strings; 0 if there is none."""
    depth = 0
    for match in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[\]]', text[begin:], re.DOTALL):
        depth += {"[": 1, "]": -1}.get(match[0], 0)
        if depth == 0 and match[0] == "]":
            return begin + match.end()
    return 0


class MistralQuirkStream(JsonQuirkStream):
    """Keeps only the first call of a list; the compact form waits for complete arguments."""

    grammar = Grammar("[TOOL_CALLS] [", "]", "")

    def feed(self, delta: str) -> Extract:
        text = self.buffer + delta
        begin = text.find("[TOOL_CALLS")
        if begin < 0:
            return super().feed(delta)
        before, self.buffer = text[:begin], text[begin:]
        listed = "[TOOL_CALLS] ["
        if self.buffer.startswith(listed) or listed.startswith(self.buffer):
            found = super().feed("")
            return Extract(before + found.content, found.pieces)
        return self._compact(before)

    def _compact(self, before: str) -> Extract:
        match = _COMPACT.match(self.buffer)
        if match is None:
            return Extract(before)
        try:
            value, end = json.JSONDecoder().raw_decode(self.buffer, match.end())
        except ValueError:
            return Extract(before)
        text, self.buffer = self.buffer[:end], self.buffer[end:]
        if match[1] not in self.table.places:
            return Extract(before + text)
        self.call = max(self.call, 0)
        pieces = [CallPiece(self.call, match[1], ""), CallPiece(self.call, None, arguments_text(value))]
        self.call += 1
        rest = self.feed("") if self.buffer else Extract()
        return Extract(before + rest.content, pieces + rest.pieces)


DIALECTS = (Dialect("mistral", parse=_parse, stream=MistralQuirkStream),)
