"""Reads a ChatML prompt back into the conversation it was rendered from."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from sfusion_tools.tokenizers import Tokenizer

IM_START = "<|im_start|>"
IM_END = "<|im_end|>"

_TOOLS = re.compile(r"<tools>\n?(.*?)\n?</tools>", re.DOTALL)
_TOOL_RESPONSE = re.compile(r"\s*<tool_response>\n?(.*?)\n?</tool_response>\s*", re.DOTALL)
_NO_THOUGHT = re.compile(r"\A<think>\s*(?:</think>\s*)?\Z")
"""With thinking switched on or off, some templates begin the turn."""

ChatMessage = dict[str, Any]


def read_prompt(prompt: str) -> tuple[ChatMessage, ...]:
    """Return the messages of a ChatML text; any other text is one user message."""
    if IM_START not in prompt:
        return ({"role": "user", "content": prompt},)
    return _messages(prompt.split(IM_START)[1:])


def read_ids(ids: Sequence[int], tokenizer: Tokenizer) -> tuple[ChatMessage, ...]:
    """Return the messages of a prompt given as ids; markers that are plain text in a message do not begin a turn."""
    marks = tokenizer.encode(IM_START)
    if len(marks) != 1 or marks[0] not in ids:
        return read_prompt(tokenizer.decode(ids))
    starts = [place for place, number in enumerate(ids) if number == marks[0]]
    return _messages([tokenizer.decode(ids[start + 1 : end]) for start, end in pairwise([*starts, len(ids)])])


def read_tools(messages: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Return the tools that the system message describes."""
    tools: list[Mapping[str, Any]] = []
    for message in messages:
        if message.get("role") != "system" or not isinstance(message.get("content"), str):
            continue
        for section in _TOOLS.findall(message["content"]):
            for line in section.splitlines():
                try:
                    tool = json.loads(line)
                except ValueError:
                    continue
                if isinstance(tool, dict):
                    tools.append(tool)
    return tuple(tools)


def _messages(turns: Sequence[str]) -> tuple[ChatMessage, ...]:
    messages: list[ChatMessage] = []
    for position, turn in enumerate(turns):
        role, _, body = turn.partition("\n")
        closed = body.rstrip("\n").endswith(IM_END)
        body = body.rstrip("\n").removesuffix(IM_END) if closed else body
        if position == len(turns) - 1 and role == "assistant" and not closed and not _NO_THOUGHT.sub("", body):
            break  # the generation prompt, still empty
        responses = _TOOL_RESPONSE.findall(body) if role in ("user", "tool") else []
        if responses and not _TOOL_RESPONSE.sub("", body).strip():
            # Qwen's own template shows tool results as a user turn, that of Hermes as one turn for all of them.
            messages += [{"role": "tool", "content": response} for response in responses]
        else:
            messages.append({"role": role, "content": body})
    return tuple(messages)
