"""The quirks of sglang's own tool-call parsers, for ``quirks: sglang``: what is lost, cut or counted wrongly.

    sglang_parse("hermes", text, tools)      # QuirkParse(content, calls): the non-streaming parse
    quirk_stream("hermes", tools)            # an object with feed(delta) and finish(): the streaming parse

How far both agree with the recordings is measured in tests/fakes/sglang and told in docs/tool-call-formats.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sfusion.fakes.sglang import quirks_stream
from sfusion.fakes.sglang.quirks_raw import CoderQuirkStream, GlmQuirkStream, HarmonyQuirkStream, PythonicQuirkStream
from sfusion.fakes.sglang.quirks_stream import (
    JsonQuirkStream,
    LlamaQuirkStream,
    MistralQuirkStream,
    QuirkDelta,
    QuirkPiece,
    QuirkStream,
)
from sfusion.fakes.sglang.quirks_tokens import DeepSeekQuirkStream, KimiQuirkStream
from sfusion.fakes.sglang.quirks_whole import QuirkCall, QuirkError, QuirkParse, parse_whole
from sfusion_tools.formats import get_format

__all__ = [
    "QuirkCall",
    "QuirkDelta",
    "QuirkError",
    "QuirkParse",
    "QuirkPiece",
    "QuirkStream",
    "held_by_client",
    "quirk_stream",
    "sglang_parse",
]


def sglang_parse(form: str, text: str, tools: Sequence[Any]) -> QuirkParse:
    """What sglang's non-streaming parser makes of a text; raises QuirkError where it raises."""
    return parse_whole(get_format(form).name, text, tools)


def quirk_stream(form: str, tools: Sequence[Any]) -> QuirkStream:
    """sglang's streaming parser of a format."""
    match get_format(form).name:
        case "hermes":
            return JsonQuirkStream(quirks_stream.HERMES, tools)
        case "qwen25":
            return JsonQuirkStream(quirks_stream.QWEN, tools)
        case "llama3":
            return LlamaQuirkStream(tools)
        case "mistral":
            return MistralQuirkStream(tools)
        case "deepseekv3":
            return DeepSeekQuirkStream(tools, fenced=True)
        case "deepseekv31":
            return DeepSeekQuirkStream(tools, fenced=False)
        case "kimi_k2":
            return KimiQuirkStream(tools)
        case "glm45":
            return GlmQuirkStream(tools)
        case "qwen3_coder":
            return CoderQuirkStream(tools)
        case "pythonic":
            return PythonicQuirkStream(tools)
        case _:
            return HarmonyQuirkStream(tools)


def held_by_client(form: str, chunks: Iterable[str], tools: Sequence[Any]) -> tuple[str, list[tuple[str | None, str]]]:
    """What a client holds after the stream: the content, and name and arguments of each call by its index."""
    stream = quirk_stream(form, tools)
    content = ""
    calls: dict[int, tuple[str | None, str]] = {}
    for delta in (*map(stream.feed, chunks), stream.finish()):
        content += delta.content
        for piece in delta.pieces:
            name, arguments = calls.get(piece.index, (None, ""))
            calls[piece.index] = (name or piece.name, arguments + piece.arguments)
    return content, [calls[index] for index in sorted(calls)]
