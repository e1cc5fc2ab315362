"""The calls of a turn: found in the model's text, planned for execution, and their results."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from sfusion_tools.errors import FormatError
from sfusion_tools.formats import Parsed, ParsedCall, Problem, get_format
from sfusion_tools.outcome import Outcome
from sfusion_tools.rollout.guess import format_of
from sfusion_tools.rollout.outline import call_id
from sfusion_tools.schemas import OpenAIFunctionToolSchema, ToolResponse
from sfusion_tools.tokenizers import Tokenizer

_THINK = "<think>"
"""How thinking begins where a format does not say."""
# Kinds of problems that, in a turn without calls, suggest that the model meant to make one.
_LOOKS_LIKE_A_CALL = frozenset(
    {"call_in_think", "fenced_code", "invented_reply", "stray_marker", "untagged_call"}
)
# Those that are a call of their own beside others: not a draft of one of them, nor a superfluous
# closing marker.
_ANOTHER_CALL = frozenset({"stray_marker", "untagged_call"})
_CLOSING = re.compile(r"</|<[|｜][^<>]*end[|｜]>", re.IGNORECASE)

_JSON_NAMES = {
    "list": "a list",
    "str": "a string",
    "int": "a number",
    "float": "a number",
    "bool": "a boolean",
}

_LONGEST_ID = 80
"""Characters of an id of the model's that a reply repeats. Chosen, so that a degenerate id does not
fill the context."""
TOLD_REFUSALS = 16
"""Refused calls of a turn that are answered one by one. Chosen: more than a model makes by
mistake, while a short text can hold thousands of them."""


class Refusal(StrEnum):
    """Why a call was answered without being executed."""

    MALFORMED = "malformed"
    UNKNOWN_TOOL = "unknown_tool"
    BAD_ARGUMENTS = "bad_arguments"
    TOO_MANY = "too_many_parallel_calls"

    @property
    def is_invalid(self) -> bool:
        """True when the call itself was wrong.

        These count towards max_consecutive_invalid_calls.
        """
        return self is not Refusal.TOO_MANY


@dataclass(frozen=True)
class FoundCall:
    """A call that a parser found in the model's text."""

    name: str
    arguments: Any
    id: str | None = None
    """The id that the model gave to it, to which the reply must refer."""


@dataclass(frozen=True)
class UnreadableCall:
    """Text that was meant as a call but could not be parsed."""

    problem: str
    """What is wrong with it, in full sentences that the model can act on."""
    name: str | None = None
    refusal: Refusal = Refusal.MALFORMED


@dataclass(frozen=True)
class ParsedTurn:
    """The model's text split into content and calls, in order."""

    content: str
    calls: tuple[FoundCall | UnreadableCall, ...] = ()
    notices: tuple[str, ...] = ()
    """Kinds of other oddities, such as a repaired call or a tool reply that the model invented."""


TurnParser = Callable[[str, Sequence[OpenAIFunctionToolSchema]], ParsedTurn]
"""Parses the text of a turn, given the tools; every call is in the result, good or bad."""


@dataclass(frozen=True)
class PlannedCall:
    """A call of the current turn, to be executed or refused.

    The model reads ``message`` for a refused one.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    refusal: Refusal | None = None
    message: str = ""

    @property
    def is_answered(self) -> bool:
        """False for a refused call that is only counted in the message of another one."""
        return self.refusal is None or bool(self.message)


@dataclass(frozen=True)
class ToolResult:
    """What a tool returned for a planned call."""

    response: ToolResponse
    reward: float | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    raised: bool = False
    """True if the tool raised."""

    @property
    def is_invalid(self) -> bool:
        """True if the tool rejected the arguments."""
        return self.metrics.get("outcome") == Outcome.BAD_ARGUMENTS


def format_parser(
    name: str | None = None, *, in_think: bool = False, tokenizer: Tokenizer | None = None
) -> TurnParser:
    """Return the parser of a format, by default of the one that the chat template stands for.

    ``in_think`` if the prompt ends inside the thinking.
    """
    form = get_format(name) if name else format_of(tokenizer)
    if form is None:
        raise FormatError(
            "the tool-call format cannot be told from the chat template: no format that we have "
            "reads back the calls that it writes; name the format"
        )
    think = form.parser.think_marks[0] if form.parser.think_marks else _THINK

    def parse(text: str, tools: Sequence[OpenAIFunctionToolSchema]) -> ParsedTurn:
        if not tools:
            return ParsedTurn(text)
        parsed = form.parse(text, tools, in_think=in_think)
        if any(problem.kind == "unclosed_think" for problem in parsed.problems):
            # A call at the end of thinking that is never closed was meant as a call; engines agree.
            before, mark, thinking = text.rpartition(think)
            repaired = form.parse(before + thinking, tools)
            if repaired.calls:
                content = before + mark + repaired.content.removeprefix(before)
                return _turn(content, repaired, notices=("unclosed_think",))
        return _turn(parsed.content, parsed)

    return parse


def _turn(content: str, parsed: Parsed, notices: tuple[str, ...] = ()) -> ParsedTurn:
    is_alone = not parsed.calls and not parsed.refused
    meant = [problem for problem in parsed.problems if _was_meant_as_call(problem, is_alone)]
    # Report only the first: it was one attempt, however many traces it left.
    found: list[ParsedCall | Problem] = [*parsed.calls, *parsed.refused, *meant[:1]]
    found.sort(key=lambda item: item.position)
    calls = tuple(_found_or_unreadable(item) for item in found)
    kinds = tuple(problem.kind for problem in parsed.problems if problem.severity != "refused")
    return ParsedTurn(content, calls, notices + kinds)


def _was_meant_as_call(problem: Problem, is_alone: bool) -> bool:
    """Is this oddity a call that the model meant to make? Alone: the turn has no other call."""
    if problem.severity != "noticed":
        return False
    if is_alone:
        return problem.kind in _LOOKS_LIKE_A_CALL
    return problem.kind in _ANOTHER_CALL and not _CLOSING.match(problem.excerpt)


def _found_or_unreadable(item: ParsedCall | Problem) -> FoundCall | UnreadableCall:
    if isinstance(item, Problem):
        return UnreadableCall(item.message, item.call_name, _refusal_of_kind(item.kind))
    return FoundCall(item.name, item.arguments, item.call_id)


def _refusal_of_kind(kind: str) -> Refusal:
    if kind == "unknown_tool":
        return Refusal.UNKNOWN_TOOL
    return Refusal.BAD_ARGUMENTS if "argument" in kind else Refusal.MALFORMED


def plan_calls(
    found: Iterable[FoundCall | UnreadableCall],
    tool_names: Sequence[str],
    max_parallel_calls: int | None,
    turn: str,
) -> list[PlannedCall]:
    """Plan every call that was found, in order.

    None is dropped, but many refused ones share a message. ``turn`` names the turn among all
    others; a call that the model gave no id gets one that is made from it.
    """
    planned: list[PlannedCall] = []
    used_ids: set[str] = set()
    executing = 0
    for position, call in enumerate(found):
        used_id = call.id if isinstance(call, FoundCall) else None
        if not used_id or len(used_id) > _LONGEST_ID or used_id in used_ids:
            used_id = call_id(turn, position)
        used_ids.add(used_id)

        name = call.name or ""
        refused = _refusal(call, tool_names)
        if refused is None and max_parallel_calls is not None and executing >= max_parallel_calls:
            refused = Refusal.TOO_MANY, _too_many(max_parallel_calls)
        if refused is not None:
            refusal, reason = refused
            planned.append(PlannedCall(used_id, name, refusal=refusal, message=f"Error: {reason}"))
            continue
        assert isinstance(call, FoundCall)
        planned.append(PlannedCall(used_id, name, call.arguments))
        executing += 1
    return _summed_up(planned)


def _too_many(max_parallel_calls: int) -> str:
    return (
        f"at most {max_parallel_calls} tool call(s) are executed per turn and this one came after "
        "them. It was not executed; send it again in your next turn if you still need it."
    )


def _summed_up(planned: list[PlannedCall]) -> list[PlannedCall]:
    """Replace the messages of all but the first refused calls by a single one."""
    refused = {place: call.refusal for place, call in enumerate(planned) if call.refusal}
    rest = list(refused)[TOLD_REFUSALS:]
    # One more message costs no more than the sum.
    if len(rest) < 2:
        return planned

    reasons = Counter(refused[place].value for place in rest)
    shown = ", ".join(f"{reason}: {count}" for reason, count in reasons.items())
    message = (
        f"Error: {len(rest)} more calls of this turn were not executed ({shown}). "
        "Make fewer calls per turn."
    )
    for place in rest:
        planned[place] = replace(planned[place], message=message if place == rest[0] else "")
    return planned


def _refusal(
    call: FoundCall | UnreadableCall, tool_names: Sequence[str]
) -> tuple[Refusal, str] | None:
    if isinstance(call, UnreadableCall):
        return call.refusal, call.problem
    if call.name not in tool_names:
        known = ", ".join(tool_names) or "none"
        reason = f"there is no tool {call.name!r}. Tools that can be called: {known}."
        return Refusal.UNKNOWN_TOOL, reason
    if not isinstance(call.arguments, dict):
        given = _JSON_NAMES.get(type(call.arguments).__name__, "null")
        reason = (
            f"the arguments of {call.name!r} must be a JSON object, but {given} was given. "
            "Nothing was executed."
        )
        return Refusal.BAD_ARGUMENTS, reason
    return None
