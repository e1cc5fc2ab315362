"""One classic mistake of a sandbox tool, and the promise that names it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from sfusion.harness.search.shrink.reference_tool import GoodTool


@dataclass(frozen=True)
class Mistake:
    """A tool that is right but for one mistake, and where that shows."""

    tool: type[GoodTool]
    promise: str
    """The promise that names the mistake."""
    shown_in: tuple[str, ...]
    """The bundled scenarios (or cells, as `name[cell]`) in which it is played: those with the situation it needs."""
    also: frozenset[str]
    """Promises that break with it because of what it does, not by chance."""
    unstated: str | None
    """The promise that names it if the tool states no outcome; None if the mistake is in what it states."""
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

SAME = "same"

UNFINISHED = ("every_call_ends_once", "outcomes")
"""What breaks wherever calls never end."""
TAKEN_FOR_OUTPUT = ("outcomes", "text_is_truthful", "infra_never_scored")
"""What breaks wherever a failure is taken for a result."""
NOTHING_SHOWN = ("every_call_ends_once", "text_is_truthful")
"""What cannot be judged where no call gets anywhere."""


def mistake(
    promise: str,
    *shown_in: str,
    also: tuple[str, ...] = (),
    unstated: str | None = SAME,
    schedule: dict[str, int] | None = None,
) -> Callable[[type[GoodTool]], type[GoodTool]]:
    """Register a tool class as a mistake."""

    def register(tool: type[GoodTool]) -> type[GoodTool]:
        made = Mistake(tool, promise, shown_in, frozenset(also), promise if unstated == SAME else unstated, schedule)
        MISTAKES[made.name] = made
        return tool

    return register
