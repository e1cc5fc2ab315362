"""What sglang does with the harmony messages of gpt-oss."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from sfusion.fakes.sglang.calls import CallPiece, Extract, arguments_text
from sfusion.fakes.sglang.dialect import Dialect
from sfusion.fakes.sglang.quirk_text import QuirkStream, ToolTable

_TOKENS = re.compile(r"<\|(?:call|end|return|start)\|>")
_MESSAGE = re.compile(
    r"(?s)(?:<\|start\|>assistant)?<\|channel\|>(?:analysis(?:<\|message\|>.*?)?"
    r"(?:<\|end\|>|<\|return\|>|(?=<\|start\|>)|\Z)"
    r"|(?P<channel>\w+)(?P<head>[^<]*)(?:<\|constrain\|>[^<]*)?(?:<\|message\|>(?P<body>.*?))?"
    r"(?:<\|call\|>|<\|end\|>|<\|return\|>|\Z))"
)


def _parse(text: str, table: ToolTable) -> Extract:
    if "<|start|>assistant<|channel|>commentary" not in text:
        return Extract(text)
    calls: list[CallPiece] = []
    parts: list[str] = []
    at = 0
    for match in _MESSAGE.finditer(text):
        parts.append(text[at : match.start()])
        at = match.end()
        channel, head, body = (match["channel"], match["head"], match["body"])
        recipient = re.search(r"to=([\w.]+)", head or "")
        if channel == "commentary" and recipient and match[0].endswith("<|call|>") and body is not None:
            calls += _call(recipient[1], body, len(calls), table)
        elif channel == "final" and body:
            parts.append(body)
    parts.append(text[at:])
    parts = [_TOKENS.sub("", part) for part in parts]
    content = " ".join(part for part in parts if part.strip() not in ("", "commentary"))
    return Extract(content.strip(), calls)


def _call(recipient: str, body: str, place: int, table: ToolTable) -> list[CallPiece]:
    """Return the call of one message; none if the tool is unknown or the JSON broken."""
    name = recipient.rsplit(".", 1)[-1]
    try:
        arguments = json.loads(body) if body.strip() else {}
    except ValueError:
        return []
    return [CallPiece(place, name, arguments_text(arguments))] if name in table.places else []


class HarmonyQuirkStream(QuirkStream):
    """Sends a call in one piece when its message ends."""

    _tokens = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>", "<|constrain|>")

    def __init__(self, tools: Sequence[Any]) -> None:
        super().__init__(tools)
        self.calls = 0
        self.channel: str | None = None
        self.head = ""
        self.plain: str | None = ""

    def _step(self, result: Extract) -> bool:
        if self.channel is None:
            match = re.search(r"(?:<\|start\|>assistant)?<\|channel\|>|<\|(?:end|call|return)\|>", self.buffer)
            if match is None:
                tokens = ("<|start|>assistant<|channel|>", "<|channel|>", "<|end|>", "<|call|>")
                self._plain(result, self._take_plain(tokens))
                return False
            self._plain(result, self.buffer[: match.start()])
            if not match[0].endswith("<|channel|>"):
                self.buffer = self.buffer[match.end() :]
                return True
            head, sign, rest = self.buffer[match.end() :].partition("<|message|>")
            if not sign:
                self.buffer = self.buffer[match.start() :]
                return False
            if self.plain and match[0].startswith("<|start|>"):
                # The first message after plain text repeats that text, with its role.
                result.content += f"{self.plain}assistant"
            self.plain = None
            self.head, self.buffer = head, rest
            self.channel = re.split(r"[\s<]", head.strip(), maxsplit=1)[0]
        return self._message(result)

    def _plain(self, result: Extract, text: str) -> None:
        result.content += text
        if self.plain is not None:
            self.plain += text

    def _message(self, result: Extract) -> bool:
        match = re.search(r"<\|(?:end|call|return)\|>", self.buffer)
        recipient = re.search(r"to=([\w.]+)", self.head)
        if match is None:
            if self.channel == "final":
                result.content += self._take_plain(self._tokens)
            return False
        body, self.buffer = self.buffer[: match.start()], self.buffer[match.end() :]
        if self.channel == "commentary" and recipient and match[0] == "<|call|>":
            found = _call(recipient[1], body, self.calls, self.table)
            result.pieces += found
            self.calls += len(found)
        elif self.channel == "final":
            result.content += body
        if self.channel != "analysis" or match[0] != "<|call|>":
            self.channel = None
        return True


DIALECTS = (Dialect("gpt-oss", parse=_parse, stream=HarmonyQuirkStream),)
