"""What sglang does with GLM 4.5 calls."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from sfusion.fakes.sglang.calls import CallPiece, Extract, arguments_text
from sfusion.fakes.sglang.dialects import Dialect
from sfusion.fakes.sglang.malformed_kinds import bad_sibling
from sfusion.fakes.sglang.quirk_text import QuirkStream, ToolTable, behind, from_objects, held, json_or_literal

_TAG = re.compile(r"<arg_key>|</arg_key>|<arg_value>|</arg_value>")
_TAGS = ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")


def _calls(text: str, table: ToolTable) -> list[CallPiece]:
    calls: list[CallPiece] = []
    for block in re.findall(r"(?s)<tool_call>.*?</tool_call>", text):
        match = re.search(r"(?s)<tool_call>(.*?)(?:\\n|\n)(.*)</tool_call>", block)
        if match is None:
            continue
        name = match[1].strip()
        calls += from_objects({"name": name, "parameters": _arguments(name, match[2], table)}, table)
    return calls


def _arguments(name: str, body: str, table: ToolTable) -> dict[str, Any]:
    pairs = re.findall(r"(?s)<arg_key>(.*?)</arg_key>(?:\\n|\s)*<arg_value>(.*?)</arg_value>", body)
    return {key.strip(): _glm_value(value, table.type_of(name, key.strip())) for key, value in pairs}


def _glm_value(text: str, kind: str | None) -> Any:
    try:
        value = json_or_literal(text)
    except ValueError:
        return text
    if kind == "string" and not isinstance(value, str):
        return text if isinstance(value, dict | list) else str(value)
    return value


class GlmQuirkStream(QuirkStream):
    """Translates keys and values into JSON as they arrive, and loses the last brace after an object.

    The server then sends what it believes to be missing of the last call: that brace, or ``{}`` a second time.
    """

    def __init__(self, tools: Sequence[Any]) -> None:
        super().__init__(tools)
        self.call = -1
        self.name: str | None = None
        self.sent = ""
        self.known: dict[str, Any] = {}

    def feed(self, delta: str) -> Extract:
        self.buffer += delta
        result = Extract()
        if self.name is None:
            begin = self.buffer.find("<tool_call>")
            if begin < 0:
                return Extract(self._take_plain("<tool_call>", "</tool_call>").replace("</tool_call>", ""))
            result.content = self.buffer[:begin]
            self.buffer = self.buffer[begin:]
            head = re.match(r"(?s)<tool_call>(.*?)(?:\\n|\n)", self.buffer)
            if head is None or not head[1].strip():
                return result
            self.name = head[1].strip()
            self.call += 1
            self.sent = ""
            self.known = {}
            self.buffer = self.buffer[head.end() :]
            result.pieces.append(CallPiece(self.call, self.name, ""))
        body, end, rest = self.buffer.partition("</tool_call>")
        text = self._translated(body if end else body[: len(body) - held(body, *_TAGS)].rstrip())
        if end and not text.endswith("}"):
            text += "}" if text else "{}"
        if len(text) > len(self.sent):
            result.pieces.append(CallPiece(self.call, None, text[len(self.sent) :]))
            self.sent = text
        if end:
            self.known = _arguments(self.name, body, self.table)
            self.sent = self.sent if body.strip() else ""  # {} is not counted as sent
            self.name = None
            self.buffer = rest
        return result

    def finish(self, reason: str) -> Extract:
        known = arguments_text(self.known)
        if self.call < 0 or self.sent not in known:
            return Extract()
        rest = known.replace(self.sent, "", 1)
        return Extract("", [CallPiece(self.call, None, rest)] if rest else [])

    def _translated(self, body: str) -> str:
        out: list[str] = []
        key, at, state = "", 0, ""
        for match in _TAG.finditer(body):
            if state == "value" and match[0] != "</arg_value>":
                continue
            inside = body[at : match.start()]
            at = match.end()
            match match[0]:
                case "<arg_key>":
                    out.append(", " if out else "{")
                    state = "key"
                case "</arg_key>" if state == "key":
                    key = inside.strip()
                    out.append(f"{json.dumps(key, ensure_ascii=False)}: ")
                    state = "colon"
                case "<arg_value>" if state == "colon":
                    state = "value"
                case "</arg_value>" if state == "value":
                    out.append(self._value(key, inside, closed=True))
                    state = "done"
        if state == "value" and body[at:]:
            out.append(self._value(key, body[at:], closed=False))
        return "".join(out)

    def _value(self, key: str, text: str, *, closed: bool) -> str:
        if self.table.type_of(self.name or "", key) not in (None, "string"):
            return text
        quoted = json.dumps(text, ensure_ascii=False)
        return quoted if closed else quoted[:-1]


DIALECTS = (
    Dialect(
        "glm45",
        parse=behind("<tool_call>", _calls),
        stream=GlmQuirkStream,
        has_grammar=False,
        shown_name="glm",
        malformed={"bad_sibling": lambda s: bad_sibling(s, f"<tool_call>{s.name}</tool_call>", "bad_layout")},
    ),
)
