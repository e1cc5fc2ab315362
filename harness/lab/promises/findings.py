"""What a promise finds wrong about single calls: a kind with its parameters, the events that show
it, and what was played."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ...core.journal import Event
from ..single_calls.calls import CallFacts

_LONGEST = 60
"""Characters of what came back that a sentence shows. Chosen: the rest is in the evidence."""
_PROGRAM = ("prints", "errors", "exit", "ending", "seconds", "arguments", "tests", "cancel")


@dataclass(frozen=True)
class Wrong:
    """Something that a promise found wrong, with the parameters of its sentence."""

    kind: str
    parameters: dict[str, Any] = field(default_factory=dict)
    evidence: list[Event] = field(default_factory=list)
    played: str = ""
    """What was played, sent and told, for the end of the sentence."""


Findings = Iterator[Wrong | None]


def wrong(kind: str, call: CallFacts, /, **parameters: Any) -> Wrong:
    """Return what is wrong with a call."""
    return Wrong(kind, {"call": call.name, **parameters}, call.evidence, f" [{played(call)}]")


def unless(fine: object, kind: str, call: CallFacts, /, **parameters: Any) -> Wrong | None:
    """Return None for something that is right about a call, else what is wrong with it."""
    return None if fine else wrong(kind, call, **parameters)


def wrong_run(kind: str, evidence: list[Event], /, **parameters: Any) -> Wrong:
    """Return what is wrong with a run as a whole."""
    return Wrong(kind, parameters, evidence)


def shown(value: Any, most: int = 80) -> str:
    """Return a value as it is shown in a sentence."""
    text = repr(value)
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} … {text[-most // 2 :]}"


def played(call: CallFacts) -> str:
    """Say in a few words which program and fault were played, what was sent and what came back."""
    return f"played: {_program(call)}; {_sent(call)}; {_came_back(call)}"


def _program(call: CallFacts) -> str:
    written = call.planned.part.written
    words = [f"{key} {shown(written[key], 40)}" for key in _PROGRAM if written.get(key)]
    faults = [shown(fault.what, 60) for fault in call.planned.part.fault]
    if faults:
        words.append(f"fault {' and '.join(faults)}")
    return ", ".join(words) or "a program that prints nothing"


def _sent(call: CallFacts) -> str:
    if not call.requests:
        return "nothing was sent"
    statuses = [str(request.status or "no answer") for request in call.requests]
    return f"sent {len(statuses)}x, answered {', '.join(statuses)}"


def _came_back(call: CallFacts) -> str:
    returned = call.returned
    if returned is None:
        return "cancelled" if call.cancelled else "did not end"
    if returned.raised is not None:
        return f"raised {returned.raised:.{_LONGEST}}"
    reward = "" if returned.reward is None else f", reward {returned.reward:g}"
    return f"came back {shown(returned.text, _LONGEST)}{reward}"
