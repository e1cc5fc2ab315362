"""What broke and how, and whether a smaller scenario still shows it: the same failure, which a right tool has not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sfusion.harness.errors import HarnessError
from sfusion.harness.lab.promises.verdict import How, Verdict
from sfusion.harness.lab.runs.runner import ERROR, RunResult, run_one
from sfusion.harness.lab.runs.tasks import Task
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.scenarios.tools import check_tool_keys
from sfusion_tools.errors import SfusionError
from sfusion_tools.sandbox.config import SandboxToolConfig

STUCK = "stuck"
"""In place of a promise: the run could not go on."""

Run = Callable[[Task], RunResult]


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that broke. Two are the same if they broke in the same way, whatever their sentences say."""

    how: How
    sentence: str = field(default="", compare=False)

    @property
    def promise(self) -> str:
        return self.how.promise

    def __str__(self) -> str:
        return f"{self.promise}: {self.sentence}"


def failure_of(verdict: Verdict) -> Failure:
    return Failure(verdict.how, verdict.sentence)


def failures_of(result: RunResult) -> list[Failure]:
    """Return every failure of a run, each once; promises that are unknown are none."""
    found = [failure_of(one) for one in result.verdicts if one.state == "broken"]
    if result.error:
        found.append(Failure(result.error_how or How(ERROR), result.error))
    stuck = next((one for one in result.journal.events if one["event"] == "stuck"), None)
    if stuck is not None:
        found.append(Failure(How(STUCK, "raised", (("raised", stuck.get("raised", "")),)), stuck["text"]))
    return list(dict.fromkeys(found))


class Reproduces:
    """Says whether a scenario fails in the same way, while a right tool passes.

    Without the right tool, a promise such as `{ok: all}` would be "broken in the same way" by a sandbox that never
    works, and shrinking would lead there. The right tool is ours. It is not asked where it fails too in the scenario to
    shrink, or is the one that runs. The code and the classes that the scenario names are run: whether to trust them
    must be decided before.
    """

    def __init__(self, scenario: Scenario, failure: Failure, *, run: Run = run_one) -> None:
        self.failure = failure
        self._run = run
        self._control = scenario.own_config is None and self._passes(scenario)

    def __call__(self, scenario: Scenario) -> bool:
        if not any(one == self.failure for one in _failures(self._run, scenario)):
            return False
        return not self._control or self._passes(scenario)

    def _passes(self, scenario: Scenario) -> bool:
        """Does a right tool keep the promise?"""
        return all(one.promise != self.failure.promise for one in _failures(run_one, with_right_tool(scenario)))


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
    with suppress(HarnessError, SfusionError):
        return failures_of(run(Task(scenario, "sim", trusted=True)))
    return []
