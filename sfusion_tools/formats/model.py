"""What a text was read as: calls, problems and the pieces of a stream."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

__all__ = ["CallDelta", "ContentDelta", "Delta", "Parsed", "ParsedCall", "Problem", "ProblemDelta", "Severity"]

Severity: TypeAlias = Literal["refused", "repaired", "noticed"]
"""``refused``: a call was written and is not handed over. ``repaired``: the call is handed over, its spelling was
mended in the only way it can be read. ``noticed``: no call was touched, but the text should not be left uncommented."""


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """One call that is complete and that the model may be held to."""

    name: str
    arguments: dict[str, Any]
    position: int = 0
    """Where the call begins in the text, in characters."""
    raw: str = field(default="", repr=False)
    """The call as it was written, markers included."""
    call_id: str | None = None
    """The id that the model itself gave to the call, in formats that have one."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a text, in words that can be sent back to the model."""

    kind: str
    message: str
    position: int
    excerpt: str = ""
    severity: Severity = "refused"
    call_name: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The problem as plain data, for JSON."""
        return {
            "kind": self.kind,
            "severity": self.severity,
            "message": self.message,
            "position": self.position,
            "excerpt": self.excerpt,
            "call_name": self.call_name,
        }


@dataclass(frozen=True, slots=True)
class Parsed:
    """A whole text, read."""

    content: str = ""
    calls: tuple[ParsedCall, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def refused(self) -> tuple[Problem, ...]:
        """The problems that each stand for a call that was not handed over."""
        return tuple(problem for problem in self.problems if problem.severity == "refused")

    @classmethod
    def of(cls, deltas: Iterable[Delta]) -> Parsed:
        """Put the pieces of a stream together."""
        content: list[str] = []
        calls: list[ParsedCall] = []
        problems: list[Problem] = []
        for delta in deltas:
            match delta:
                case ContentDelta(text):
                    content.append(text)
                case CallDelta(call):
                    calls.append(call)
                case ProblemDelta(problem):
                    problems.append(problem)
        return cls("".join(content), tuple(calls), tuple(problems))


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """Text outside of calls."""

    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A whole call. It comes in one piece, because a call is only a call once its end was seen to be right."""

    call: ParsedCall


@dataclass(frozen=True, slots=True)
class ProblemDelta:
    """Something that is wrong with the text so far."""

    problem: Problem


Delta: TypeAlias = ContentDelta | CallDelta | ProblemDelta
