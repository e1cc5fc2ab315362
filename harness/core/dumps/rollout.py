"""One rollout of a dump, whatever trainer wrote it: what is read of a line, under which keys."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .sample import finite_score
from .tool_texts import MOST_CALLS, tool_texts

KEYS: Mapping[str, tuple[str, ...]] = {
    "input": ("input", "prompt"),
    "output": ("output", "completion", "response", "messages"),
    "score": ("score", "reward", "rewards"),
    "step": ("step", "training_step", "global_step"),
    "group": (
        "uid",
        "group",
        "group_id",
        "group_index",
        "prompt_idx",
        "prompt_id",
        "example_id",
        "task_hash",
    ),
    "id": ("request_id", "trajectory", "trajectory_id", "episode_id"),
    "tokens": ("tokens", "response_length"),
    "lost": (),
    "reward_lost": ("reward_lost",),
}
"""What is read of a line, and the keys that it is looked for under, unless told."""

_TOOL_ROLES = frozenset({"tool", "function", "ipython", "observation", "tool_response"})
_CODE = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_LARGEST = 1e100
"""A score beyond this is none: its square is not a number."""
_MOST_TOKENS = 10**9
"""A number of tokens beyond this is none (chosen: no answer is as long)."""


@dataclass(slots=True)
class Rollout:
    """What is known of one sample before anything is concluded."""

    prompt: str
    texts: list[str]
    """What the tools answered, in order."""
    score: float | None
    step: Any = None
    group: Any = None
    id: Any = None
    tokens: float | None = None
    programs: list[str] = field(default_factory=list)
    """What the tools were asked to run, in order, as far as the dump has it."""
    record: Mapping[str, Any] = field(default_factory=dict)
    """The line itself."""


def first_of(record: Mapping[str, Any], keys: Sequence[str]) -> Any:
    """Return the value of the first key that has one; NaN, as verl writes a reward that is not a
    number, is none."""
    for key in keys:
        value = record.get(key)
        if value is not None and value == value:
            return value
    return None


def read_rollout(record: Mapping[str, Any], keys: Mapping[str, tuple[str, ...]]) -> Rollout:
    """Read a flat line; texts may be one text each, or lists of messages."""
    output = first_of(record, keys["output"])
    texts, programs = _tool_turns(output)
    return Rollout(
        prompt=_as_text(first_of(record, keys["input"])),
        texts=texts,
        score=score_of(first_of(record, keys["score"])),
        step=first_of(record, keys["step"]),
        group=first_of(record, keys["group"]),
        id=first_of(record, keys["id"]),
        tokens=_tokens_of(first_of(record, keys["tokens"])),
        programs=programs,
        record=record,
    )


def score_of(value: Any) -> float | None:
    """Return a score; a list of one, as NeMo RL writes it, is its only number."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    number = finite_score(float(value) if isinstance(value, bool) else value)
    if number is None or number != number or abs(number) > _LARGEST:
        return None
    return number


def _tokens_of(value: Any) -> float | None:
    if isinstance(value, Mapping):
        value = value.get("trained")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < _MOST_TOKENS else None


def _tool_turns(output: Any) -> tuple[list[str], list[str]]:
    """Return what the tools answered, and what they were asked to run."""
    if isinstance(output, str):
        return tool_texts(output), _CODE.findall(output) if "<tool_call>" in output else []
    texts = []
    programs = []
    for message in output if isinstance(output, list) else ():
        if not isinstance(message, Mapping):
            continue
        if message.get("role") in _TOOL_ROLES or message.get("type") == "function_call_output":
            texts.append(_as_text(message.get("content", message.get("output"))))
        elif message.get("type") == "function_call":
            programs.append(_as_text(message.get("arguments")))
        else:
            programs += _called(message.get("tool_calls"))
            content = _as_text(message.get("content"))
            if "<tool_response>" in content:
                texts += tool_texts(content)
    return texts[:MOST_CALLS], programs[:MOST_CALLS]


def _called(calls: Any) -> list[str]:
    """Return the arguments of the calls in an assistant's message."""
    found = []
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, Mapping):
            inner = call.get("function")
            holder = inner if isinstance(inner, Mapping) else call
            found.append(_as_text(holder.get("arguments")))
    return found


def _as_text(value: Any) -> str:
    """Return a text, also of a message's parts."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(part, Mapping) for part in value):
        texts = [part.get("text", part.get("content")) for part in value]
        if all(isinstance(text, str) for text in texts):
            return "\n".join(map(str, texts))
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
