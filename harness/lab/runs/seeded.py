"""What the commands share that play one scenario with many seeds."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated

from ...commandline.declaring import option
from ...commandline.options import BundledOrFile, Html, Jobs, Json, Keyword, On, RayAddress, Trust
from ...errors import BadOption
from ..scenarios import scenario_files
from ..scenarios.model import World
from ..spreading import Workers, open_workers
from .tasks import Task, read_tasks, select_tasks

_SEEDS = 3
"""Measured: a sweep of 4..64 before a quota recommends the same value with 2, 3 and 10 seeds."""
_SEEDS_OF_TRAININGS = 10
"""Chosen: a difference of trainings needs at least 6 to be told from chance."""
_SHOWN_NAMES = 4
"""How many cells an error names; chosen: they fit on a line."""


@dataclass(frozen=True)
class SeededOptions:
    """The options of such a command."""

    scenario: BundledOrFile
    seeds: Annotated[
        int | None,
        option(
            "Number of seeds per setting; by default 3, and 10 where a toy is trained.",
            min=1,
            max=1000,
        ),
    ] = None
    keyword: Keyword = ""
    trust: Trust = False
    jobs: Jobs = 0
    on: On = "here"
    ray_address: RayAddress = None
    html: Html = None
    json: Json = None

    def seeds_of(self, task: Task) -> int:
        """Return the number of seeds that was asked for, or what such a scenario needs."""
        if self.seeds is not None:
            return self.seeds
        return _SEEDS if task.scenario.training is None else _SEEDS_OF_TRAININGS

    def cell(self, world: World = "sim") -> Task:
        """Return the one cell to play; raise BadOption if there is none, or more than one."""
        tasks = read_tasks(scenario_files([self.scenario]), world, trust=self.trust)
        found, skipped = select_tasks(tasks, keyword=self.keyword)
        if not found:
            why = "; ".join(skipped) or f"-k {self.keyword!r} matches no cell"
            raise BadOption(f"{self.scenario} cannot be played: {why}")
        if len(found) > 1:
            names = ", ".join(task.name for task in found[:_SHOWN_NAMES])
            if len(found) > _SHOWN_NAMES:
                names += ", ..."
            raise BadOption(f"{self.scenario} has {len(found)} cells ({names}); choose one with -k")
        return found[0]

    def workers(self, runs: int) -> AbstractContextManager[Workers]:
        """Open what the runs are spread over."""
        return open_workers(self.side_by_side(runs), self.on, self.ray_address)

    def side_by_side(self, runs: int) -> int:
        """Return how many runs are played at a time."""
        return min(self.jobs or os.cpu_count() or 1, runs)
