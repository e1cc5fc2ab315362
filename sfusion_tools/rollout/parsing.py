"""Parses a model's turn in one of the tool-call formats."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sfusion_tools.formats import Parsed, ParsedCall, Problem, get_format
from sfusion_tools.rollout.metrics import Refusal
from sfusion_tools.rollout.turns import FoundCall, ParsedTurn, TurnParser, UnreadableCall
from sfusion_tools.schemas import OpenAIFunctionToolSchema

_THINK = "<think>"
# Kinds of problems that, in a turn without calls, suggest that the model meant to make one.
_LOOKS_LIKE_A_CALL = frozenset({"call_in_think", "fenced_code", "invented_reply", "stray_marker", "untagged_call"})
# Those that are a call of their own beside others: not a draft of one of them, nor a superfluous closing marker.
_ANOTHER_CALL = frozenset({"stray_marker", "untagged_call"})
_CLOSING = re.compile(r"</|<[|｜][^<>]*end[|｜]>", re.IGNORECASE)


def format_parser(name: str, *, in_think: bool = False) -> TurnParser:
    """Return the parser of the format of this name; ``in_think`` if the prompt ends inside the thinking."""
    form = get_format(name)

    def parse(text: str, tools: Sequence[OpenAIFunctionToolSchema]) -> ParsedTurn:
        if not tools:
            return ParsedTurn(text)
        shown = [tool.model_dump() for tool in tools]
        parsed = form.parse(text, shown, in_think=in_think)
        if any(problem.kind == "unclosed_think" for problem in parsed.problems):
            # A call at the end of thinking that is never closed was meant as a call; engines agree.
            before, mark, thinking = text.rpartition(_THINK)
            repaired = form.parse(before + thinking, shown)
            if repaired.calls:
                return _turn(before + mark + repaired.content.removeprefix(before), repaired, ("unclosed_think",))
        return _turn(parsed.content, parsed)

    return parse


def _turn(content: str, parsed: Parsed, notices: tuple[str, ...] = ()) -> ParsedTurn:
    alone = not parsed.calls and not parsed.refused
    meant = [
        problem
        for problem in parsed.problems
        if problem.severity == "noticed"
        and problem.kind in (_LOOKS_LIKE_A_CALL if alone else _ANOTHER_CALL)
        and (alone or not _CLOSING.match(problem.excerpt))
    ]
    # Report only the first: it was one attempt, however many traces it left.
    found: list[ParsedCall | Problem] = [*parsed.calls, *parsed.refused, *meant[:1]]
    found.sort(key=lambda item: item.position)
    calls = tuple(
        UnreadableCall(item.message, item.call_name, _refusal(item.kind))
        if isinstance(item, Problem)
        else FoundCall(item.name, item.arguments, item.call_id)
        for item in found
    )
    kinds = tuple(problem.kind for problem in parsed.problems if problem.severity != "refused")
    return ParsedTurn(content, calls, notices + kinds)


def _refusal(kind: str) -> Refusal:
    if kind == "unknown_tool":
        return Refusal.UNKNOWN_TOOL
    return Refusal.BAD_ARGUMENTS if "argument" in kind else Refusal.MALFORMED
