"""The key ``schedule``: in which order world sim runs what is ready at the same time."""

from __future__ import annotations

import itertools
import re
from typing import Annotated

from pydantic import Field, model_validator

from sfusion.harness.errors import BadOption
from sfusion.harness.lab.scenarios.base import ScenarioPart

Deviation = tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]]
"""A step and the number of the callback that ran then instead of number 0, the first of the queue."""


class SchedulePart(ScenarioPart):
    """One of random, priority and deviations. Without a schedule the order is first in, first out."""

    random: int | None = Field(None, ge=0, description="seed: each step draws one of the ready callbacks")
    priority: int | None = Field(
        None, ge=0, description="seed: the callback of the highest priority runs; priorities are drawn"
    )
    changes: int | None = Field(
        None, ge=0, le=1000, description="with priority: how often the running one drops to the lowest (default 3)"
    )
    deviations: list[Deviation] | None = Field(
        None, description="an explicit schedule: [step, number] pairs; all other steps run the first in the queue"
    )

    @model_validator(mode="after")
    def _one_way(self) -> SchedulePart:
        given = [key for key in ("random", "priority", "deviations") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of random, priority and deviations; found {', '.join(given) or 'none'}")
        if self.changes is not None and self.priority is None:
            raise ValueError("`changes` belongs to `priority`")
        steps = [step for step, _ in self.deviations or ()]
        if any(later <= step for step, later in itertools.pairwise(steps)):
            raise ValueError("deviations: steps must increase")
        return self


def read_schedule(text: str) -> dict[str, int]:
    """Read the value of ``--schedule``: SEED, priority:SEED or priority:SEED:CHANGES; raise BadOption."""
    found = re.fullmatch(r"([0-9]+)|priority:([0-9]+)(?::([0-9]+))?", text, re.ASCII)
    if found is None:
        raise BadOption(f"--schedule {text}: expected SEED, priority:SEED or priority:SEED:CHANGES")
    random, priority, changes = found.groups()
    if random is not None:
        return {"random": int(random)}
    return {"priority": int(priority)} | ({} if changes is None else {"changes": int(changes)})
