"""Which calls of a turn are executed, and what the model reads about the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sfusion_tools.rollout.metrics import Refusal
from sfusion_tools.rollout.templating import call_id
from sfusion_tools.rollout.turns import FoundCall, PlannedCall, UnreadableCall

_JSON_NAMES = {"list": "a list", "str": "a string", "int": "a number", "float": "a number", "bool": "a boolean"}

_LONGEST_ID = 80
"""A longer id of the model's is not repeated in the reply."""
TOLD_REFUSALS = 16
"""How many refused calls of a turn are answered one by one: a short text can hold thousands of them."""


def plan_calls(
    found: Iterable[FoundCall | UnreadableCall],
    tool_names: Sequence[str],
    max_parallel_calls: int | None,
    turn: str,
) -> list[PlannedCall]:
    """Plan every call that was found, in order; none is dropped, but many refused ones share a message.

    ``turn`` names the turn among all others; a call that the model gave no id gets one that is made from it.
    """
    planned: list[PlannedCall] = []
    used: set[str] = set()
    executing = 0
    for position, call in enumerate(found):
        given = call.id if isinstance(call, FoundCall) else None
        if not given or len(given) > _LONGEST_ID or given in used:
            given = call_id(turn, position)
        used.add(given)
        name = call.name or ""
        refused = _refusal(call, tool_names)
        if refused is None and max_parallel_calls is not None and executing >= max_parallel_calls:
            refused = (
                Refusal.TOO_MANY,
                f"at most {max_parallel_calls} tool call(s) are executed per turn and this one came after them. "
                "It was not executed; send it again in your next turn if you still need it.",
            )
        if refused is not None:
            planned.append(PlannedCall(given, name, refusal=refused[0], message=f"Error: {refused[1]}"))
            continue
        assert isinstance(call, FoundCall)
        planned.append(PlannedCall(given, name, call.arguments))
        executing += 1
    return _summed_up(planned)


def _summed_up(planned: list[PlannedCall]) -> list[PlannedCall]:
    """Replace the messages of all but the first refused calls by a single one."""
    places = [place for place, call in enumerate(planned) if call.refusal is not None]
    rest = places[TOLD_REFUSALS:]
    # One more message costs no more than the sum.
    if len(rest) < 2:
        return planned
    reasons = Counter(call.refusal.value for call in (planned[place] for place in rest) if call.refusal)
    shown = ", ".join(f"{reason}: {count}" for reason, count in reasons.items())
    message = f"Error: {len(rest)} more calls of this turn were not executed ({shown}). Make fewer calls per turn."
    for place in rest:
        planned[place] = replace(planned[place], message=message if place == rest[0] else "")
    return planned


def _refusal(call: FoundCall | UnreadableCall, tool_names: Sequence[str]) -> tuple[Refusal, str] | None:
    if isinstance(call, UnreadableCall):
        return call.refusal, call.problem
    if call.name not in tool_names:
        known = ", ".join(tool_names) or "none"
        return Refusal.UNKNOWN_TOOL, f"there is no tool {call.name!r}. Tools that can be called: {known}."
    if not isinstance(call.arguments, dict):
        given = _JSON_NAMES.get(type(call.arguments).__name__, "null")
        return (
            Refusal.BAD_ARGUMENTS,
            f"the arguments of {call.name!r} must be a JSON object, but {given} was given. Nothing was executed.",
        )
    return None
