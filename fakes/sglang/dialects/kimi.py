"""What sglang does with Kimi K2 calls."""

from __future__ import annotations

import json
import re

from sfusion.fakes.sglang.calls import CallPiece, Extract
from sfusion.fakes.sglang.dialects import Dialect
from sfusion.fakes.sglang.malformed_kinds import repaired
from sfusion.fakes.sglang.quirk_text import TokenQuirkStream, ToolTable

_KIMI = re.compile(
    r"(?s)<\|tool_call_begin\|>\s*(?P<id>[\w.]+:\d+|\d+)\s*<\|tool_call_argument_begin\|>\s*(?P<body>.*?)"
    r"(?P<end><\|tool_call_end\|>|\Z)"
)
_KIMI_SILENT = re.compile(r"<\|tool_calls_section_begin\|>|<\|tool_calls_section_end\|>|<\|tool_call_end\|>")


def _parse(text: str, table: ToolTable) -> Extract:
    start = text.find("<|tool_calls_section_begin|>")
    if start < 0:
        return Extract(text)
    calls: list[CallPiece] = []
    pattern = (
        r"(?s)<\|tool_call_begin\|>\s*([\w.]+:\d+|\d+)\s*<\|tool_call_argument_begin\|>\s*"
        r"(\{.*?\})\s*<\|tool_call_end\|>"
    )
    for identity, body in re.findall(pattern, text):
        name = _name(identity, body, table)
        if name is not None:
            calls.append(CallPiece(len(calls), name, body))
    return Extract(text[:start], calls)


def _name(identity: str, body: str, table: ToolTable) -> str | None:
    """Return the name in an id; for a bare number, the tool that fits the arguments."""
    match = re.fullmatch(r"(?:functions\.)?([\w.]+):\d+", identity)
    if match:
        return match[1]
    try:
        keys = set(json.loads(body))
    except (ValueError, TypeError):
        return None
    fitting = [name for name, properties in table.parameters.items() if keys and keys <= set(properties)]
    return fitting[0] if fitting else None


class KimiQuirkStream(TokenQuirkStream):
    """Passes arguments on without parsing them."""

    def feed(self, delta: str) -> Extract:
        self.buffer += delta
        if "<|tool_call_begin|>" not in self.buffer and "<|tool_calls_section_begin|>" not in self.buffer:
            return Extract(_KIMI_SILENT.sub("", self._take_plain("<|tool_calls_section_begin|>")))
        match = _KIMI.search(self.buffer)
        if match is None:
            return Extract()
        pieces: list[CallPiece] = []
        if not self.named:
            name = _name(match["id"], match["body"], self.table)
            if name is None:
                return Extract()
            pieces = self._send(name, "")
        pieces += self._send("", match["body"])
        if match["end"]:
            self._next(self.buffer[match.end() :])
        return Extract("", pieces)


DIALECTS = (
    Dialect(
        "kimi_k2",
        parse=_parse,
        stream=KimiQuirkStream,
        numbered_ids=True,
        malformed={
            # An id without a name is repaired, because only one tool fits the arguments.
            "missing_name": lambda s: repaired(s.section(s.form.write_call("", s.arguments())), s.call, "bad_id")
        },
    ),
)
