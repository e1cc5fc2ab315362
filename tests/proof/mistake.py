"""One classic mistake of a sandbox tool, and the promise that names it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.reference_tool import GoodTool


@dataclass(frozen=True)
class Mistake:
    """A tool that is right but for one mistake, and where that shows."""

    tool: type[GoodTool]
    promise: str
    """The promise that names the mistake."""
    shown_in: tuple[str, ...]
    """The bundled scenarios (or cells, as `name[cell]`) in which it is played: those with the
    situation it needs."""
    also: frozenset[str]
    """Promises that break with it because of what it does, not by chance."""
    schedule: dict[str, int] | None = None
    """The schedule under which it is played; first in, first out does not show it."""

    @property
    def name(self) -> str:
        return re.sub(r"(?<!^)(?=[A-Z]|(?<![0-9])[0-9])", "-", self.tool.__name__).lower()

    @property
    def about(self) -> str:
        return " ".join((self.tool.__doc__ or "").split())


MISTAKES: dict[str, Mistake] = {}
"""Every mistake by name, in the order of the table."""

UNFINISHED = ("every_call_ends_once", "outcomes")
"""What breaks wherever calls never end."""
TAKEN_FOR_OUTPUT = ("outcomes", "text_is_truthful", "infra_never_scored")
"""What breaks wherever a failure is taken for a result."""
NOTHING_SHOWN = ("every_call_ends_once", "text_is_truthful")
"""What cannot be judged where no call gets anywhere."""

UNSEEN = (
    "limiter-of-its-own",
    "ignores-the-pace",
    "round-robin",
    "model-sets-the-timeout",
    "never-retries",
    "retries-without-bound",
    "retries-refusals",
    "retries-sandbox-errors",
    "retries-what-may-have-run",
    "retries-in-step",
    "retries-at-once",
    "connection-per-call",
    "reuses-dead-connections",
    "ignores-undecodable-bytes",
    "outcome-only-in-metrics",
    "unbounded-output",
    "keeps-escape-codes",
)
"""Not mistakes of every client, so a trial does not accuse them: a scenario has to say what it
wants."""


def in_cells() -> list[Mistake]:
    """Return the mistakes that are played in scenarios: the first of each promise, and those that
    no trial sees."""
    first = {one.promise: one.name for one in reversed(MISTAKES.values())}
    return [
        one for one in MISTAKES.values() if one.name in UNSEEN or first[one.promise] == one.name
    ]


def mistake(
    promise: str,
    *shown_in: str,
    also: tuple[str, ...] = (),
    schedule: dict[str, int] | None = None,
) -> Callable[[type[GoodTool]], type[GoodTool]]:
    """Register a tool class as a mistake."""

    def register(tool: type[GoodTool]) -> type[GoodTool]:
        made = Mistake(tool, promise, shown_in, frozenset(also), schedule)
        MISTAKES[made.name] = made
        return tool

    return register
