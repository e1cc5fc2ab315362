"""Shrinking: from a failing run to the smallest scenario and schedule that fail in the same way."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sfusion_tools.errors import SfusionError
from sfusion_tools.sandbox.config import SandboxToolConfig

from ...core.verdict import How
from ...errors import HarnessError
from ...lab.promises import PROMISES
from ...lab.runs.runner import ERROR, RunResult, run_one
from ...lab.runs.tasks import Task
from ...lab.scenarios.base import Data
from ...lab.scenarios.model import Scenario
from ...lab.scenarios.tools import check_tool_keys
from .reductions import REDUCTIONS, Reduction, is_seeded, other_seeds

__all__ = ["Budget", "Failure", "Reproduces", "Shrunk", "failures_of", "shrink"]

STUCK = "stuck"
"""In place of a promise: the run could not go on."""

Run = Callable[[Task], RunResult]


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that broke. Two are the same if they broke in the same way, whatever their
    sentences say."""

    how: How
    sentence: str = field(default="", compare=False)

    @property
    def promise(self) -> str:
        return self.how.promise

    def __str__(self) -> str:
        return f"{self.promise}: {self.sentence}"


def failures_of(result: RunResult) -> list[Failure]:
    """Return every failure of a run, each once; promises that are unknown are none."""
    found = [
        Failure(verdict.how, verdict.sentence)
        for verdict in result.verdicts
        if verdict.state == "broken"
    ]
    if result.error:
        found.append(Failure(result.error_how or How(ERROR), result.error))
    stuck = next((event for event in result.journal.events if event["event"] == "stuck"), None)
    if stuck is not None:
        how = How(STUCK, "raised", identity=(("raised", stuck.get("raised", "")),))
        found.append(Failure(how, stuck["text"]))
    return list(dict.fromkeys(found))


def with_promise(scenario: Scenario, failure: Failure) -> Scenario:
    """Return the scenario with no other promise than the one that a failure breaks."""
    if failure.promise not in PROMISES:
        return scenario
    named = [
        declared
        for declared in scenario.plain.get("promises", [])
        if _declares(declared, failure.promise)
    ]
    return scenario.changed(promises=named or [failure.promise])


def _declares(declared: Any, promise: str) -> bool:
    """Is this entry of `promises` about that promise? It is its name, or a mapping from its name to
    its parameters."""
    if isinstance(declared, str):
        return declared == promise
    return promise in declared


class Reproduces:
    """Says whether a scenario fails in the same way, while a right tool passes.

    Without the right tool, a promise such as `{ok: all}` would be "broken in the same way" by a
    sandbox that never works, and shrinking would lead there. The right tool is ours. It is not
    asked where it fails too in the scenario to shrink, or is the one that runs. The code and the
    classes that the scenario names are run: whether to trust them must be decided before.
    """

    def __init__(self, scenario: Scenario, failure: Failure, *, run: Run = run_one) -> None:
        self.failure = failure
        self._run = run
        is_foreign = scenario.own_config is None
        self._compare = is_foreign and self._right_tool_passes(scenario)

    def __call__(self, scenario: Scenario) -> bool:
        if self.failure not in _failures(self._run, scenario):
            return False
        return not self._compare or self._right_tool_passes(scenario)

    def _right_tool_passes(self, scenario: Scenario) -> bool:
        failures = _failures(run_one, with_right_tool(scenario))
        return all(failure.promise != self.failure.promise for failure in failures)


def with_right_tool(scenario: Scenario) -> Scenario:
    """Return the scenario of another tool with ours, with the settings that it knows."""
    assert isinstance(scenario.tools, list)
    given: dict[str, Any] = scenario.tools[0].get("config") or {}
    config: dict[str, Any] = {}
    for key, value in given.items():
        field = SandboxToolConfig.model_fields.get(key)
        if field is not None and value != field.default:
            with suppress(ValueError):  # another class may mean something else by it
                check_tool_keys({**config, key: value})
                config[key] = value
    return scenario.changed(tools=config)


def _failures(run: Run, scenario: Scenario) -> list[Failure]:
    """Return how a scenario fails; not at all if it cannot be run."""
    with suppress(HarnessError, SfusionError):
        return failures_of(run(Task(scenario, "sim", trusted=True)))
    return []


SameFailure = Callable[[Scenario], bool]
"""Runs a scenario and says whether it fails as the one to shrink did."""

_OTHER_SEEDS = 4
"""How many seeds of a schedule are tried for a smaller scenario that does not fail with the old
one (chosen)."""


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
    """Return the smallest scenario for which ``same_failure`` is true, which it is for
    ``scenario``.

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
    """The smallest scenario until now, and the search for one that is smaller."""

    def __init__(
        self,
        scenario: Scenario,
        same: SameFailure,
        budget: Budget,
        on_case: Callable[[int, Scenario], None],
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
        from ...lab.worlds import sim

        if explicit := sim.run(self.smallest).events[-1]["deviations"]:
            self._try({**self.data, "schedule": {"deviations": [list(pair) for pair in explicit]}})

    def _step(self, reduction: Reduction) -> bool:
        """Take the first variant that fails in the same way; return whether there is one."""
        for variant in reduction(self.data):
            if self._try(variant):
                return True
            if not is_seeded(variant):
                continue
            for reseeded in other_seeds(variant, _OTHER_SEEDS):
                if self._try(reseeded):
                    return True
        return False

    def _try(self, data: Data) -> bool:
        """Take over a candidate if it fails in the same way; return whether it does."""
        key = _key(data)
        if key in self._seen:
            return False
        self._seen.add(key)
        try:
            scenario = Scenario.from_data(data)
        except ValueError:
            return False
        if self._is_exhausted():
            raise _Exhausted
        self.cases += 1
        same = self._same(scenario)
        if same:
            self.smallest = scenario
            self.data = data
        self._on_case(self.cases, self.smallest)
        return same

    def _is_exhausted(self) -> bool:
        if self.cases >= self._budget.cases:
            return True
        if self._budget.seconds is None:
            return False
        return time.monotonic() - self._began >= self._budget.seconds


def _key(data: Any) -> str:
    return json.dumps(data, sort_keys=True, default=str)
