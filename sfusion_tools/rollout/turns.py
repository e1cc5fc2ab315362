"""The values passed between a request and the driver: parsed turns, planned calls and their results."""

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


class TurnParser(Protocol):
    """Parses the text of a turn; every call is in the result, good or bad."""

    def __call__(self, text: str, tools: Sequence[OpenAIFunctionToolSchema]) -> ParsedTurn: ...


@dataclass(frozen=True)
class PlannedCall:
    """A call of the current turn: to be executed, or refused with the message that the model will read."""

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
