"""Finds what looks like a tool call in text that holds none, so that a call in wrong clothes is not lost."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

__all__ = ["suspicions"]

_OBJECT = re.compile(
    r'\{\s*"(?:name"\s*:\s*"[^"\n]*"\s*,\s*"(?:arguments|parameters)|(?:arguments|parameters)"\s*:\s*[{"\[])'
)
_FENCE = re.compile(r"^[ \t]*```[ \t]*(?:py|python3?|tool_call|tool_code)[ \t]*$", re.MULTILINE | re.IGNORECASE)
_REPLY = re.compile(
    r"<tool_response>|<\|tool_response\|?>|<｜tool▁outputs?▁begin｜>|\[TOOL_RESULTS\]|<\|observation\|>\s*\S"
)
_MARKS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("hermes, qwen25, qwen3_coder or glm45", re.compile(r"</?tool_call>?", re.IGNORECASE)),
    ("qwen3_coder or glm45", re.compile(r"<function[= ]|</?arg_(?:key|value)>", re.IGNORECASE)),
    ("llama3", re.compile(r"<\|python_tag\|>", re.IGNORECASE)),
    ("mistral", re.compile(r"\[TOOL_CALLS|\[ARGS\]", re.IGNORECASE)),
    (
        "deepseekv3 or deepseekv31",
        re.compile(r"<[｜|]tool[▁_]calls?[▁_](?:begin|end)[｜|]>|<[｜|]tool[▁_]sep[｜|]>", re.IGNORECASE),
    ),
    ("kimi_k2", re.compile(r"<\|tool_calls?_(?:section_|argument_)?(?:begin|end)\|>", re.IGNORECASE)),
    ("gpt-oss", re.compile(r"<\|(?:channel|message|call|constrain)\|>", re.IGNORECASE)),
)


def suspicions(
    pieces: Sequence[tuple[int, str]], form: str, tools: Sequence[str]
) -> Iterator[tuple[str, str, int, str]]:
    """Yield kind, message, position and excerpt of what looks like a call or like a tool's reply.

    ``pieces`` is what stands outside of calls and outside of the thinking, each with its place in the text.
    """
    text = "".join(piece for _, piece in pieces)
    reply = _REPLY.search(text)
    if reply:
        yield (
            "invented_reply",
            "The text holds a tool's reply that no tool gave. Stop after the calls and wait for the real reply.",
            _place(pieces, reply.start()),
            _excerpt(text, reply.start()),
        )
    for kind, message, found in _lookalikes(text, form, tools):
        yield kind, message, _place(pieces, found.start()), _excerpt(text, found.start())
        return


def _lookalikes(text: str, form: str, tools: Sequence[str]) -> Iterator[tuple[str, str, re.Match[str]]]:
    for owner, pattern in _MARKS:
        if found := pattern.search(text):
            whose = (
                "are not written as this format wants them"
                if form in owner.replace(",", "").split()
                else f"belong to {owner}, not to {form}"
            )
            yield "stray_marker", f"The text holds markers of a tool call that {whose}, so no call was made.", found
    if found := _OBJECT.search(text):
        yield "untagged_call", "The text holds what looks like a tool call without its markers; it was not made.", found
    if found := _FENCE.search(text):
        message = "The text holds fenced code and no tool call; code in a fence is not run."
        yield "fenced_code", message, found
    if tools:
        bare = re.compile(
            r"^\[?\s*(?:" + "|".join(map(re.escape, tools)) + r")\s*\(\s*(?:\w+\s*=|['\"\[{]|\))", re.MULTILINE
        )
        if found := bare.search(text):
            yield (
                "untagged_call",
                "The text holds what looks like a tool call without its markers; it was not made.",
                found,
            )


def _excerpt(text: str, at: int) -> str:
    return text[at : at + 80].split("\n", 1)[0]


def _place(pieces: Sequence[tuple[int, str]], at: int) -> int:
    for offset, piece in pieces:
        if at < len(piece):
            return offset + at
        at -= len(piece)
    return at
