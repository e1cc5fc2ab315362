"""What a promise finds wrong about single calls: a kind with its parameters, the events that show
it, and what was played."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ...core.journal import Event
from ..single_calls.calls import CallFacts
from ..single_calls.in_words import PlayedCase, case_of


@dataclass(frozen=True)
class Wrong:
    """Something that a promise found wrong, with the parameters of its sentence."""

    kind: str
    parameters: dict[str, Any] = field(default_factory=dict)
    evidence: list[Event] = field(default_factory=list)
    case: PlayedCase | None = None
    """What was played, sent and told."""
    in_sentence: bool = True
    """The sentence ends with the case."""


Findings = Iterator[Wrong | None]


def wrong(kind: str, call: CallFacts, /, **parameters: Any) -> Wrong:
    """Return what is wrong with a call."""
    return Wrong(kind, {"call": call.name, **parameters}, call.evidence, case_of(call))


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
