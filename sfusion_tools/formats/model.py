"""The result of parsing: calls, problems and the pieces of a stream."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Severity: TypeAlias = Literal["refused", "repaired", "noticed"]
"""How bad a problem is.

``refused``: a call was written but is not returned. ``repaired``: the call is returned, with its
spelling corrected in the only possible way. ``noticed``: no call is affected, but something is odd.
"""


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A call as it was read from a text."""

    name: str
    arguments: dict[str, Any]
    position: int = 0
    """Where the call begins in the text, in characters."""
    raw: str = field(default="", repr=False)
    """The call as it was written, markers included."""
    call_id: str | None = None
    """The id that the model gave to the call, in formats that have one."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a text; the message can be sent back to the model."""

    kind: str
    message: str
    position: int
    excerpt: str = ""
    severity: Severity = "refused"
    call_name: str | None = None

    def as_dict(self) -> dict[str, Any]:
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
    """The result of parsing a whole text."""

    content: str = ""
    calls: tuple[ParsedCall, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def refused(self) -> tuple[Problem, ...]:
        """The problems of severity ``refused``, one for each call that is not in ``calls``."""
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
    """A whole call. It comes in one piece, because only the end shows whether it is valid."""

    call: ParsedCall


@dataclass(frozen=True, slots=True)
class ProblemDelta:
    """A problem in the text so far."""

    problem: Problem


Delta: TypeAlias = ContentDelta | CallDelta | ProblemDelta
