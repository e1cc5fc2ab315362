"""What sglang does with the harmony messages of gpt-oss."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from sfusion.fakes.sglang.calls import CallPiece, Extract, arguments_text
from sfusion.fakes.sglang.dialects import Dialect
from sfusion.fakes.sglang.quirk_text import SteppedQuirkStream, ToolTable

_TOKENS = re.compile(r"<\|(?:call|end|return|start)\|>")
_MARKERS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>", "<|constrain|>")
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


class HarmonyQuirkStream(SteppedQuirkStream):
    """Sends a call in one piece when its message ends.

    Two parts of sglang read the same text, each with its own buffer. The parser of messages waits for a marker and then
    passes on what it held. The detector around it passes on text without markers at once: text before the first marker
    is sent twice, and words behind a marker that the detector has already forgotten are taken for plain text.
    """

    def __init__(self, tools: Sequence[Any]) -> None:
        super().__init__(tools)
        self.calls = 0
        self.channel: str | None = None
        self.head = ""
        self.begun = False
        self.unread = ""
        """What the detector has not passed on or forgotten."""
        self.after_call = False
        """Text that may be the word "commentary" is dropped."""
        self.eventful = False

    def feed(self, delta: str) -> Extract:
        self.unread += delta
        self.eventful = False
        parsed = super().feed(delta)
        if not self.eventful and not any(marker in self.unread for marker in _MARKERS):
            text, self.unread = self.unread, ""
            return Extract(text)
        if "<|channel|>commentary to=" not in self.unread:
            parsed.pieces.clear()
        if self.eventful:
            self.unread = ""
            self.after_call = bool(parsed.pieces) or (self.after_call and not parsed.content.strip())
        return parsed

    def _step(self, result: Extract) -> bool:
        self.begun = self.begun or "<|start|>" in self.buffer or "<|channel|>" in self.buffer
        if not self.begun:
            return False
        if self.channel is None:
            match = re.search(r"<\|(?:start|channel|end|call|return)\|>", self.buffer)
            if match is None:
                self._plain(result, self._take_plain(*_MARKERS))
                return False
            self._plain(result, self.buffer[: match.start()])
            self.buffer = self.buffer[match.start() :]
            if match[0] not in ("<|start|>", "<|channel|>"):
                self.buffer = self.buffer[len(match[0]) :]
                return True
            message = re.match(r"(?s)(?:<\|start\|>assistant)?<\|channel\|>(.*?)<\|message\|>", self.buffer)
            if message is None:
                return False
            self.head, self.buffer = message[1], self.buffer[message.end() :]
            self.channel = re.split(r"[\s<]", self.head.strip(), maxsplit=1)[0]
        return self._message(result)

    def _plain(self, result: Extract, text: str) -> None:
        if text and not (self.after_call and "commentary".startswith(text.strip().lower())):
            result.content += text
            self.eventful = True

    def _message(self, result: Extract) -> bool:
        match = re.search(r"<\|(?:end|call|return)\|>", self.buffer)
        recipient = re.search(r"to=([\w.]+)", self.head)
        if match is None:
            if self.channel == "final" and (text := self._take_plain(*_MARKERS)):
                result.content += text
                self.eventful = True
            return False
        body, self.buffer = self.buffer[: match.start()], self.buffer[match.end() :]
        if self.channel == "commentary" and recipient and match[0] == "<|call|>":
            found = _call(recipient[1], body, self.calls, self.table)
            result.pieces += found
            self.calls += len(found)
        elif self.channel == "final":
            result.content += body
        self.eventful = True
        if self.channel != "analysis" or match[0] != "<|call|>":
            self.channel = None
        return True


DIALECTS = (Dialect("gpt-oss", parse=_parse, stream=HarmonyQuirkStream),)
