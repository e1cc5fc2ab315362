"""What sglang does with Qwen3-Coder calls."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sfusion.fakes.sglang.calls import CallPiece, Extract, arguments_text
from sfusion.fakes.sglang.dialects import Dialect
from sfusion.fakes.sglang.malformed_kinds import bad_sibling
from sfusion.fakes.sglang.quirk_text import SteppedQuirkStream, ToolTable, json_or_literal


def _parse(text: str, table: ToolTable) -> Extract:
    start = text.find("<tool_call>")
    if start < 0:
        return Extract(text)
    blocks = re.findall(r"(?s)<tool_call>(.*?)</tool_call>", text) or [text[start + len("<tool_call>") :]]
    calls: list[CallPiece] = []
    for block in blocks:
        for closed, open_ended in re.findall(r"(?s)<function=(?:(.*?)</function>|(.*))", block):
            name, sign, body = (closed or open_ended).partition(">")
            if not sign:
                continue
            arguments = {}
            for parameter in re.findall(
                r"(?s)<parameter=(.*?)(?:</parameter>|(?=<parameter=)|(?=</function>)|$)", body
            ):
                key, sign, value = parameter.partition(">")
                if sign:
                    value = value.removeprefix("\n").removesuffix("\n")
                    arguments[key] = _value(value, table.type_of(name, key))
            calls.append(CallPiece(len(calls), name, arguments_text(arguments)))
    return Extract(text[:start], calls)


def _value(text: str, kind: str | None) -> Any:
    """Read raw text as its declared type; text that does not fit stays text."""
    if text.lower() == "null":
        return None
    try:
        match kind:
            case "integer":
                return int(text)
            case "number":
                return float(text)
            case "boolean":
                return text.strip().lower() == "true"
            case "object" | "array":
                return json_or_literal(text)
    except ValueError:
        pass
    return text


class CoderQuirkStream(SteppedQuirkStream):
    """Sends a brace, one piece for each parameter when it is complete, and a brace."""

    def __init__(self, tools: Sequence[Any]) -> None:
        super().__init__(tools)
        self.call = -1
        self.name: str | None = None
        self.parameters = 0
        self.tagged = False

    def _step(self, result: Extract) -> bool:
        return self._outside(result) if self.name is None else self._inside(result)

    def _outside(self, result: Extract) -> bool:
        match = re.search(r"<tool_call>|</tool_call>|<function=", self.buffer)
        if match is None:
            self._emit(result, self._take_plain("<tool_call>", "</tool_call>", "<function="))
            return False
        self._emit(result, self.buffer[: match.start()])
        self.buffer = self.buffer[match.start() :]
        if match[0] != "<function=":
            self.tagged = match[0] == "<tool_call>"
            self.buffer = self.buffer[len(match[0]) :]
            return True
        name, sign, rest = self.buffer[len("<function=") :].partition(">")
        if not sign:
            return False
        self.name, self.buffer, self.parameters = name, rest, 0
        self.call += 1
        result.pieces.append(CallPiece(self.call, name or None, ""))
        return True

    def _emit(self, result: Extract, text: str) -> None:
        if not self.tagged:
            result.content += text

    def _inside(self, result: Extract) -> bool:
        parameter = self.buffer.find("<parameter=")
        end = self.buffer.find("</function>")
        another = re.search(r"<tool_call>|<function=", self.buffer)
        if another and not any(0 <= place < another.start() for place in (parameter, end)):
            self.name = None
            self.buffer = self.buffer[another.start() :]
            return True
        if parameter >= 0 and (end < 0 or parameter < end):
            key, sign, rest = self.buffer[parameter + len("<parameter=") :].partition(">")
            close = re.search(r"</parameter>|(?=<parameter=)|(?=</function>)", rest) if sign else None
            if close is None:
                return False
            text = rest[: close.start()].removeprefix("\n").removesuffix("\n")
            value = arguments_text(_value(text, self.table.type_of(self.name or "", key)))
            self._emit(result, self.buffer[:parameter])
            self._open(result)
            comma = ", " if self.parameters else ""
            result.pieces.append(CallPiece(self.call, None, f"{comma}{arguments_text(key)}: {value}"))
            self.parameters += 1
            self.buffer = rest[close.end() :]
            return True
        if end < 0:
            return False
        self._emit(result, self.buffer[:end])
        self._open(result)
        result.pieces.append(CallPiece(self.call, None, "}"))
        self.buffer = self.buffer[end + len("</function>") :]
        self.name = None
        return True

    def _open(self, result: Extract) -> None:
        if not self.parameters:
            result.pieces.append(CallPiece(self.call, None, "{"))


DIALECTS = (
    Dialect(
        "qwen3_coder",
        parse=_parse,
        stream=CoderQuirkStream,
        malformed={
            "bad_sibling": lambda s: bad_sibling(s, f"<tool_call>\n<function={s.name}\n</tool_call>", "missing_name")
        },
    ),
)
