"""The parts of a trajectory: turns, and in them text, thinking and calls in the format they have.

A dump does not say in which format its calls are. The parsers of all formats that a turn has a
marker of read it, and the one that finds most calls wins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from sfusion_tools.formats import (
    CallDelta,
    ContentDelta,
    Delta,
    Format,
    ProblemDelta,
    format_names,
    get_format,
)

from ...core.dumps.sample import turn_texts

PartKind = Literal["text", "think", "call"]

_HEADER = re.compile(
    r"<\|start_header_id\|>(?P<llama>\w+)<\|end_header_id\|>\s*"
    r"|(?:<\|turn>|<start_of_turn>)(?P<gemma>\w+)\n"
    r"|<\|start\|>(?P<harmony>system|user|developer|functions\.[\w.-]+)[^<\n]*"
    r"(?:<\|channel\|>\w+)?<\|message\|>"
    r"|(?=<\|start\|>(?P<own>assistant))"
    r"|<\|(?P<glm>system|user|assistant|observation)\|>\n?"
    r"|<\|im_(?:system|user|assistant)\|>(?P<kimi>[^<\n]*)<\|im_middle\|>"
    r"|<｜(?P<deepseek>User|Assistant)｜>"
    r"|(?P<outputs><｜tool▁outputs▁begin｜>)"
)
"""Where a turn begins, in the templates of the model families that are not ChatML."""
_ROLES = {"ipython": "tool", "observation": "tool", "model": "assistant"}
_ENDS = re.compile(
    r"<\|(?:eot_id|eom_id|end|im_end|return|end_of_text)\|>|<turn\|>|<end_of_turn>"
    r"|(?:<\|start\|>assistant)?<\|channel\|>(?:final|commentary)<\|message\|>"
    r"|<｜end▁of▁sentence｜>|<｜tool▁outputs?▁(?:begin|end)｜>"
)
_THINK = re.compile(
    r"<think>.*?(?:</think>|(?=<tool_call>)|\Z)"
    r"|(?:<\|start\|>assistant)?<\|channel\|>analysis<\|message\|>.*?(?:<\|end\|>|\Z)"
    r"|<\|channel>thought.*?(?:<channel\|>|\Z)"
    r"|<seed:think>.*?(?:</seed:think>|\Z)"
    r"|<\|open\|>think<\|sep\|>.*?(?:<\|close\|>think<\|sep\|>|\Z)",
    re.DOTALL,
)


@dataclass(frozen=True)
class CallView:
    """A tool call for display; line breaks in its arguments are real ones."""

    name: str
    arguments: tuple[tuple[str, str], ...] = ()
    problem: str = ""
    """Why it was refused, if it was."""


@dataclass(frozen=True)
class TurnPart:
    kind: PartKind
    text: str
    call: CallView | None = None


@dataclass(frozen=True)
class TurnView:
    role: str
    parts: tuple[TurnPart, ...]


def split_turns(text: str, first_role: str = "assistant") -> list[TurnView]:
    """Split a text into turns; what precedes the first role belongs to ``first_role``."""
    if "<|im_start|>" in text or not _HEADER.search(text):
        turns = turn_texts(text, first_role)
    else:
        turns = _with_headers(text, first_role)
    return [_turn(role, body.strip("\n")) for role, body in turns]


def _with_headers(text: str, first_role: str) -> list[tuple[str, str]]:
    """Split at the headers of other templates; messages of one assistant in a row are one turn."""
    turns: list[tuple[str, str]] = []
    role = first_role
    at = 0
    for header in _HEADER.finditer(text):
        _add_turn(turns, role, text[at : header.start()])
        named = str(header[header.lastgroup or 0]).lower()
        if named.startswith(("functions.", "<")):
            named = "tool"
        role = _ROLES.get(named, named)
        at = header.end()
    _add_turn(turns, role, text[at:])
    return turns


def _add_turn(turns: list[tuple[str, str]], role: str, body: str) -> None:
    if role != "assistant":
        body = _ENDS.sub("", body)
    if not body.strip():
        return
    if turns and turns[-1][0] == role == "assistant":
        turns[-1] = (role, turns[-1][1] + body)
    else:
        turns.append((role, body))


def _turn(role: str, body: str) -> TurnView:
    if role != "assistant":
        return TurnView(role, (TurnPart("text", body),) if body else ())
    form = _format_of(body)
    parts: list[TurnPart] = []
    at = 0
    for thought in _THINK.finditer(body):
        parts += _parts(form, body[at : thought.start()])
        parts.append(TurnPart("think", thought[0].strip("\n")))
        at = thought.end()
    parts += _parts(form, body[at:])
    return TurnView(role, tuple(parts))


def _format_of(body: str) -> Format | None:
    """Return the format in which most calls of a turn can be read.

    Of several, the one with the fewest refused calls, and then with most markers in the text.
    """
    best: Format | None = None
    best_rank = (0, -len(body), 0)
    for form in map(get_format, format_names()):
        bare = form.name == "llama3" and body.lstrip().startswith("{")
        if not bare and not any(opener in body for opener in form.parser.openers):
            continue
        parsed = form.parse(_THINK.sub("", body))
        markers = {*form.parser.openers, *form.parser.silent}
        explained = sum(len(marker) for marker in markers if marker in body)
        rank = (len(parsed.calls), -len(parsed.refused), explained)
        if (parsed.calls or parsed.refused) and rank > best_rank:
            best = form
            best_rank = rank
    return best


def _parts(form: Format | None, text: str) -> Iterator[TurnPart]:
    """Split a text without thinking into text and calls, in their order."""
    if form is None:
        plain = _ENDS.sub("", text).strip("\n")
        if plain.strip():
            yield TurnPart("text", plain)
        return
    stream = form.stream()
    deltas = [*stream.feed(text), *stream.finish()]
    written: list[str] = []
    for delta in deltas:
        if isinstance(delta, ContentDelta):
            written.append(delta.text)
            continue
        call = _call(delta, text)
        if call is not None:
            yield from _text(written)
            written = []
            yield call
    yield from _text(written)


def _text(written: list[str]) -> Iterator[TurnPart]:
    text = _ENDS.sub("", "".join(written)).strip("\n")
    if text.strip():
        yield TurnPart("text", text)


def _call(delta: Delta, text: str) -> TurnPart | None:
    """Return the part of a call or of a refused one."""
    if isinstance(delta, CallDelta):
        call = delta.call
        arguments = tuple((key, _shown(value)) for key, value in call.arguments.items())
        return TurnPart("call", call.raw, CallView(call.name, arguments))
    if isinstance(delta, ProblemDelta) and delta.problem.severity == "refused":
        problem = delta.problem
        raw = problem.excerpt
        if raw.endswith("…"):
            # Its end is not known; what follows is shown with it.
            raw = text[problem.position :]
        return TurnPart("call", raw, CallView(problem.call_name or "?", problem=problem.message))
    return None


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
