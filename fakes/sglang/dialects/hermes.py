"""What sglang does with Hermes and Qwen 2.5/3 calls."""

from __future__ import annotations

import json
import re

from sfusion.fakes.sglang.calls import CallPiece
from sfusion.fakes.sglang.dialects import Dialect
from sfusion.fakes.sglang.malformed_kinds import maker_of
from sfusion.fakes.sglang.quirk_json import Grammar, JsonQuirkStream
from sfusion.fakes.sglang.quirk_text import QuirkError, ToolTable, behind, from_objects


class HermesQuirkStream(JsonQuirkStream):
    grammar = Grammar("<tool_call>", "</tool_call>", "", trims=True)


class QwenQuirkStream(JsonQuirkStream):
    grammar = Grammar("<tool_call>\n", "\n</tool_call>", "\n")


def _hermes(text: str, table: ToolTable) -> list[CallPiece] | None:
    calls: list[CallPiece] = []
    for match in re.finditer(r"(?s)<tool_call>(?:(.*?)</tool_call>|(.*))", text):
        body = match[1] or match[2] or ""
        if not body:
            continue
        try:
            calls += from_objects(json.loads(body), table)
        except (ValueError, QuirkError):
            return None
    return calls


def _qwen25(text: str, table: ToolTable) -> list[CallPiece]:
    calls: list[CallPiece] = []
    for body in re.findall(r"(?s)<tool_call>\n(.*?)\n</tool_call>", text):
        try:
            found = json.loads(body)
        except ValueError:
            continue
        calls += from_objects(found, table)
    return calls


_MALFORMED = {"prose_inside": maker_of("prose_inside")}

DIALECTS = (
    Dialect("hermes", parse=behind("<tool_call>", _hermes), stream=HermesQuirkStream, malformed=_MALFORMED),
    Dialect(
        "qwen25",
        parse=behind("<tool_call>\n", _qwen25),
        stream=QwenQuirkStream,
        shown_name="qwen",
        malformed=_MALFORMED,
    ),
)
