"""The search for the smallest scenario that still fails in the same way."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sfusion.harness.lab.scenarios.base import Data
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.worlds import sim
from sfusion.harness.search.shrink.reductions import REDUCTIONS, Reduction, is_seeded, other_seeds

SameFailure = Callable[[Scenario], bool]
"""Runs a scenario and says whether it fails as the one to shrink did."""

_OTHER_SEEDS = 4
"""How many seeds of a schedule are tried for a smaller scenario that does not fail with the old one."""


@dataclass(frozen=True)
class Budget:
    """When to stop the search: after this many runs or, unless it is None, this time."""

    cases: int = 2000
    seconds: float | None = 30.0


@dataclass(frozen=True)
class Shrunk:
    """The smallest scenario that was found."""

    scenario: Scenario
    cases: int
    """How many candidates were run."""
    finished: bool
    """No candidate that is simpler fails in the same way; otherwise the budget ran out."""


_DEFAULT_BUDGET = Budget()


class _Exhausted(Exception):
    """The budget is used up."""


def shrink(
    scenario: Scenario,
    same_failure: SameFailure,
    budget: Budget = _DEFAULT_BUDGET,
    *,
    on_case: Callable[[int, Scenario], None] = lambda cases, smallest: None,
) -> Shrunk:
    """Return the smallest scenario for which ``same_failure`` is true, which it is for ``scenario``.

    ``on_case`` is called after each run.
    """
    search = _Search(scenario, same_failure, budget, on_case)
    try:
        search.reduce()
        if is_seeded(search.data):
            search.spell_out()
            search.reduce()
    except _Exhausted:
        return Shrunk(search.smallest, search.cases, finished=False)
    return Shrunk(search.smallest, search.cases, finished=True)


class _Search:
    def __init__(
        self, scenario: Scenario, same: SameFailure, budget: Budget, on_case: Callable[[int, Scenario], None]
    ) -> None:
        self.smallest = scenario
        self.data: Data = scenario.plain
        self.cases = 0
        self._same = same
        self._budget = budget
        self._on_case = on_case
        self._began = time.monotonic()
        self._seen = {_key(self.data)}

    def reduce(self) -> None:
        """Apply reductions until none of them leads any further."""
        going = True
        while going:
            going = False
            for reduction in REDUCTIONS:
                while self._step(reduction):
                    going = True

    def spell_out(self) -> None:
        """Replace a seeded schedule by the deviations that it leads to, which can be reduced."""
        if explicit := sim.run(self.smallest).events[-1]["deviations"]:
            self._try({**self.data, "schedule": {"deviations": [list(pair) for pair in explicit]}})

    def _step(self, reduction: Reduction) -> bool:
        """Take the first variant that fails in the same way; return whether there is one."""
        for variant in reduction(self.data):
            if self._try(variant):
                return True
            if is_seeded(variant) and any(map(self._try, other_seeds(variant, _OTHER_SEEDS))):
                return True
        return False

    def _try(self, data: Data) -> bool:
        key = _key(data)
        if key in self._seen:
            return False
        self._seen.add(key)
        try:
            scenario = Scenario.from_data(data)
        except ValueError:
            return False
        spent = time.monotonic() - self._began
        if self.cases >= self._budget.cases or (self._budget.seconds is not None and spent >= self._budget.seconds):
            raise _Exhausted
        self.cases += 1
        same = self._same(scenario)
        if same:
            self.smallest, self.data = scenario, data
        self._on_case(self.cases, self.smallest)
        return same


def _key(data: Any) -> str:
    return json.dumps(data, sort_keys=True, default=str)
