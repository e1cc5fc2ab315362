"""What sglang does with Llama 3 calls."""

from __future__ import annotations

import json
import re
from typing import Any

from sfusion.fakes.sglang.calls import CallPiece, Extract
from sfusion.fakes.sglang.dialects import Dialect
from sfusion.fakes.sglang.malformed_kinds import expecting
from sfusion.fakes.sglang.quirk_json import BrokenJson, Grammar, JsonQuirkStream
from sfusion.fakes.sglang.quirk_text import ToolTable, from_objects, literal

_PYTHON_DICT = re.compile(r"\{\s*'[^']*'\s*:")


def _parse(text: str, table: ToolTable) -> Extract:
    before, tag, rest = text.partition("<|python_tag|>")
    if not tag:
        if not text.startswith("{"):
            return Extract(text)
        before, rest = "", text
    decoder = json.JSONDecoder()
    found: list[Any] = []
    at = done = 0
    while at < len(rest):
        try:
            value, size = decoder.raw_decode(rest[at:])
        except ValueError:
            try:
                value, size = literal(rest[at:]), len(rest) - at
            except ValueError:
                at = rest.find('{"name":', at + 1)
                if at < 0:
                    break
                continue
        found.append(value)
        at += size + 1
        done = at
    return Extract(before + rest[done:], from_objects(found, table))


class LlamaQuirkStream(JsonQuirkStream):
    """Stops for good at a Python dict inside a string, which sglang mistakes for the call."""

    grammar = Grammar("<|python_tag|>", "", ";", bare=True)

    def _advance(self) -> list[CallPiece]:
        if _PYTHON_DICT.search(self.buffer):
            raise BrokenJson(self.buffer[:40])
        return super()._advance()


_SEPARATOR = ("repaired", "bad_separator")

DIALECTS = (
    Dialect(
        "llama3",
        parse=_parse,
        stream=LlamaQuirkStream,
        malformed={
            "unbalanced": expecting("unbalanced", ("refused", "truncated")),
            "two_objects": expecting("two_objects", _SEPARATOR, _SEPARATOR),
            "doubled_payload": expecting("doubled_payload", ("refused", "doubled_payload"), _SEPARATOR),
            "untagged": None,
        },
    ),
)
