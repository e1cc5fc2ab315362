"""What passes between the request and whoever generates, parses and executes for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sfusion_tools.outcome import Outcome
from sfusion_tools.rollout.metrics import Refusal
from sfusion_tools.schemas import OpenAIFunctionToolSchema, ToolResponse


@dataclass(frozen=True)
class FoundCall:
    """A call that a parser found in the model's text."""

    name: str
    arguments: Any


@dataclass(frozen=True)
class UnreadableCall:
    """Something that was meant as a call and could not be read."""

    problem: str
    """What is wrong with it: whole sentences that the model can act on."""
    name: str | None = None
    refusal: Refusal = Refusal.MALFORMED


@dataclass(frozen=True)
class ParsedTurn:
    """The model's text taken apart: what it says, and what it calls, in order."""

    content: str
    calls: tuple[FoundCall | UnreadableCall, ...] = ()
    notices: tuple[str, ...] = ()
    """Kinds of other oddities: a call that had to be mended, a tool reply that the model invented."""


class TurnParser(Protocol):
    """Takes a turn's text apart."""

    def __call__(self, text: str, tools: Sequence[OpenAIFunctionToolSchema]) -> ParsedTurn:
        """Every call of the text, good or bad; nothing is dropped."""
        ...


@dataclass(frozen=True)
class PlannedCall:
    """A call of the present turn: to be executed, or refused with the message that the model will read."""

    id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    refusal: Refusal | None = None
    message: str = ""


@dataclass(frozen=True)
class CallResult:
    """What executing a planned call gave."""

    response: ToolResponse
    reward: float | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    raised: bool = False
    """True when the tool raised instead of answering."""

    @property
    def is_invalid(self) -> bool:
        """True when the tool found the arguments unusable."""
        return self.metrics.get("outcome") == Outcome.BAD_ARGUMENTS
