"""What sglang's parsers of raw-text calls, Python calls and harmony messages send while a text streams."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from typing import Any

from sfusion.fakes.sglang.quirks_stream import QuirkDelta, QuirkPiece
from sfusion.fakes.sglang.quirks_whole import ToolTable, coder_value, dumped, harmony_call, python_calls

__all__ = ["CoderQuirkStream", "GlmQuirkStream", "HarmonyQuirkStream", "PythonicQuirkStream"]

_TAG = re.compile(r"<arg_key>|</arg_key>|<arg_value>|</arg_value>")
_TAGS = ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")


def _held(text: str, tokens: Sequence[str]) -> int:
    """How much of the end of ``text`` may become one of ``tokens``."""
    for size in range(min(len(text), max(map(len, tokens)) - 1), 0, -1):
        if any(token.startswith(text[-size:]) for token in tokens):
            return size
    return 0


class GlmQuirkStream:
    """Translates keys and values into JSON as they come, and forgets the last brace behind an object."""

    def __init__(self, tools: Sequence[Any]) -> None:
        self.table = ToolTable.of(tools)
        self.buffer = ""
        self.call = -1
        self.name: str | None = None
        self.sent = ""

    def feed(self, delta: str) -> QuirkDelta:
        self.buffer += delta
        result = QuirkDelta()
        if self.name is None:
            begin = self.buffer.find("<tool_call>")
            if begin < 0:
                held = _held(self.buffer, ("<tool_call>", "</tool_call>"))
                text = self.buffer[: len(self.buffer) - held]
                self.buffer = self.buffer[len(text) :]
                return QuirkDelta(text.replace("</tool_call>", ""))
            result.content = self.buffer[:begin]
            self.buffer = self.buffer[begin:]
            head = re.match(r"(?s)<tool_call>(.*?)(?:\\n|\n)", self.buffer)
            if head is None or not head[1].strip():
                return result
            self.name = head[1].strip()
            self.call += 1
            self.sent = ""
            self.buffer = self.buffer[head.end() :]
            result.pieces.append(QuirkPiece(self.call, self.name, ""))
        body, end, rest = self.buffer.partition("</tool_call>")
        text = self._translated(body if end else body[: len(body) - _held(body, _TAGS)].rstrip())
        if end and not text.endswith("}"):
            text += "}" if text else "{}"
        if len(text) > len(self.sent):
            result.pieces.append(QuirkPiece(self.call, None, text[len(self.sent) :]))
            self.sent = text
        if end:
            self.name = None
            self.buffer = rest
        return result

    def finish(self) -> QuirkDelta:
        return QuirkDelta()

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


class CoderQuirkStream:
    """Sends a brace, one piece for each parameter when it is complete, and a brace."""

    def __init__(self, tools: Sequence[Any]) -> None:
        self.table = ToolTable.of(tools)
        self.buffer = ""
        self.call = -1
        self.name: str | None = None
        self.parameters = 0
        self.tagged = False

    def feed(self, delta: str) -> QuirkDelta:
        self.buffer += delta
        result = QuirkDelta()
        while self._step(result):
            pass
        return result

    def finish(self) -> QuirkDelta:
        return QuirkDelta()

    def _step(self, result: QuirkDelta) -> bool:
        return self._outside(result) if self.name is None else self._inside(result)

    def _outside(self, result: QuirkDelta) -> bool:
        match = re.search(r"<tool_call>|</tool_call>|<function=", self.buffer)
        if match is None:
            held = _held(self.buffer, ("<tool_call>", "</tool_call>", "<function="))
            self._emit(result, self.buffer[: len(self.buffer) - held])
            self.buffer = self.buffer[len(self.buffer) - held :]
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
        result.pieces.append(QuirkPiece(self.call, name or None, ""))
        return True

    def _emit(self, result: QuirkDelta, text: str) -> None:
        if not self.tagged:
            result.content += text

    def _inside(self, result: QuirkDelta) -> bool:
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
            value = dumped(coder_value(text, self.table.type_of(self.name or "", key)))
            self._emit(result, self.buffer[:parameter])
            self._open(result)
            comma = ", " if self.parameters else ""
            result.pieces.append(QuirkPiece(self.call, None, f"{comma}{dumped(key)}: {value}"))
            self.parameters += 1
            self.buffer = rest[close.end() :]
            return True
        if end < 0:
            return False
        self._emit(result, self.buffer[:end])
        self._open(result)
        result.pieces.append(QuirkPiece(self.call, None, "}"))
        self.buffer = self.buffer[end + len("</function>") :]
        self.name = None
        return True

    def _open(self, result: QuirkDelta) -> None:
        if not self.parameters:
            result.pieces.append(QuirkPiece(self.call, None, "{"))


class PythonicQuirkStream:
    """Waits for the bracket that closes the list, counting brackets in strings, too."""

    def __init__(self, tools: Sequence[Any]) -> None:
        self.table = ToolTable.of(tools)
        self.buffer = ""

    def feed(self, delta: str) -> QuirkDelta:
        self.buffer = (self.buffer + delta).replace("<|python_start|>", "").replace("<|python_end|>", "")
        begin = self.buffer.find("[")
        if begin < 0:
            held = _held(self.buffer, ("<|python_start|>", "<|python_end|>"))
            text = self.buffer[: len(self.buffer) - held]
            self.buffer = self.buffer[len(text) :]
            return QuirkDelta(text)
        result = QuirkDelta(self.buffer[:begin])
        self.buffer = self.buffer[begin:]
        end = self._end()
        if not end:
            return result
        code, self.buffer = self.buffer[:end], self.buffer[end:]
        if not re.match(r"\[[a-zA-Z]+\w*\(\s*(?:\)|[a-zA-Z]+\w*=)", code) or not re.search(r"\)\s*\]\Z", code):
            result.content += code
        else:
            with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                calls = python_calls(code, self.table)
                result.pieces += [QuirkPiece(call.index, call.name, call.arguments) for call in calls]
        rest = self.feed("") if self.buffer else QuirkDelta()
        return QuirkDelta(result.content + rest.content, result.pieces + rest.pieces)

    def finish(self) -> QuirkDelta:
        return QuirkDelta()

    def _end(self) -> int:
        depth = 0
        for place, char in enumerate(self.buffer):
            depth += {"[": 1, "]": -1}.get(char, 0)
            if depth == 0:
                return place + 1
        return 0


class HarmonyQuirkStream:
    """Sends a call in one piece when its message ends."""

    _tokens = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>", "<|constrain|>")

    def __init__(self, tools: Sequence[Any]) -> None:
        self.table = ToolTable.of(tools)
        self.buffer = ""
        self.calls = 0
        self.channel: str | None = None
        self.head = ""
        self.plain: str | None = ""

    def feed(self, delta: str) -> QuirkDelta:
        self.buffer += delta
        result = QuirkDelta()
        while self._step(result):
            pass
        return result

    def finish(self) -> QuirkDelta:
        return QuirkDelta()

    def _step(self, result: QuirkDelta) -> bool:
        if self.channel is None:
            match = re.search(r"(?:<\|start\|>assistant)?<\|channel\|>|<\|(?:end|call|return)\|>", self.buffer)
            if match is None:
                held = _held(self.buffer, ("<|start|>assistant<|channel|>", "<|channel|>", "<|end|>", "<|call|>"))
                self._plain(result, self.buffer[: len(self.buffer) - held])
                self.buffer = self.buffer[len(self.buffer) - held :]
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
                # The first message behind plain text brings that text along once more, with its role.
                result.content += f"{self.plain}assistant"
            self.plain = None
            self.head, self.buffer = head, rest
            self.channel = re.split(r"[\s<]", head.strip(), maxsplit=1)[0]
        return self._message(result)

    def _plain(self, result: QuirkDelta, text: str) -> None:
        result.content += text
        if self.plain is not None:
            self.plain += text

    def _message(self, result: QuirkDelta) -> bool:
        match = re.search(r"<\|(?:end|call|return)\|>", self.buffer)
        recipient = re.search(r"to=([\w.]+)", self.head)
        if match is None:
            if self.channel == "final":
                held = _held(self.buffer, self._tokens)
                result.content += self.buffer[: len(self.buffer) - held]
                self.buffer = self.buffer[len(self.buffer) - held :]
            return False
        body, self.buffer = self.buffer[: match.start()], self.buffer[match.end() :]
        if self.channel == "commentary" and recipient and match[0] == "<|call|>":
            for call in harmony_call(recipient[1], body, self.calls, self.table):
                result.pieces.append(QuirkPiece(call.index, call.name, call.arguments))
                self.calls += 1
        elif self.channel == "final":
            result.content += body
        if self.channel != "analysis" or match[0] != "<|call|>":
            self.channel = None
        return True
