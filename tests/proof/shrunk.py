"""Shrinks each mistake of the proof from the scenario in which it is played."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

from sfusion.harness.lab.promises import PROMISES
from sfusion.harness.lab.runs.runner import run_one
from sfusion.harness.lab.runs.tasks import Task
from sfusion.harness.search.shrink import Budget, Reproduces, Shrunk, failures_of, shrink
from sfusion.harness.search.shrink.command import counts_of
from tests.proof.changes import CHANGES
from tests.proof.proof import Proof, ProofRun

MOST_CALLS, MOST_RULES = 10, 2
HEAD = ("", "mistake", "promise", "calls", "rules", "events", "deviations", "runs", "CPU s")
_BUDGET = Budget(cases=2000, seconds=None)


@dataclass(frozen=True)
class ShownMistake:
    """A mistake, and the cases in which it may be shown."""

    name: str
    promise: str
    cases: tuple[ProofRun, ...]


@dataclass(frozen=True)
class ShrunkMistake:
    """What became of it; the scenario is None if no case showed the mistake."""

    name: str
    promise: str
    found: Shrunk | None = None
    cpu_seconds: float = 0.0

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Return the numbers of calls (or rollouts), rules, events and deviations."""
        assert self.found is not None
        return counts_of(self.found.scenario)

    @property
    def small(self) -> bool:
        return (
            self.found is not None and self.counts[0] <= MOST_CALLS and self.counts[1] <= MOST_RULES
        )

    @property
    def row(self) -> tuple[str, ...]:
        """Return the cells of its line in the table."""
        if self.found is None:
            return ("missed", self.name, self.promise, *([""] * 6))
        numbers = (*self.counts, self.found.cases)
        return (
            "small" if self.small else "large",
            self.name,
            self.promise,
            *map(str, numbers),
            f"{self.cpu_seconds:.1f}",
        )


def prey_of(keyword: str) -> Iterator[ShownMistake]:
    """Yield the mistakes and changes whose name matches."""
    proof = Proof(keyword)
    for name, row in proof.rows.items():
        if row.promise is not None:
            yield ShownMistake(
                name, row.promise, tuple(case for case in proof.cases if case.row == name)
            )


def shrink_mistake(prey: ShownMistake) -> ShrunkMistake:
    """Shrink the first case that shows it, in any process."""
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # what a killed worker leaves open
    for case in prey.cases:
        with CHANGES[case.change].applied() if case.change else nullcontext():
            scenario = case.task.scenario
            if prey.promise not in {one.name for one in scenario.promises}:
                try:
                    scenario = scenario.changed(
                        promises=[*scenario.plain["promises"], prey.promise]
                    )
                except ValueError:  # it needs a parameter, or rollouts
                    continue
            shown = failures_of(run_one(Task(scenario, "sim", trusted=True)))
            failure = next((one for one in shown if one.promise == prey.promise), None)
            if failure is not None:
                began = time.process_time()
                found = shrink(scenario, Reproduces(scenario, failure), _BUDGET)
                return ShrunkMistake(prey.name, prey.promise, found, time.process_time() - began)
    assert prey.promise in PROMISES
    return ShrunkMistake(prey.name, prey.promise)
