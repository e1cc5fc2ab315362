"""Bugs in our own stack are seen by `sfusion run`."""

from __future__ import annotations

import pytest

from sfusion.harness.lab.runs import Task, read_tasks, run_one
from sfusion.harness.lab.scenarios import scenario_files
from tests.own_bugs.bugs import BUGS, Bug


@pytest.fixture(scope="module")
def tasks() -> dict[str, Task]:
    names = sorted({one.scenario.partition("[")[0] for one in BUGS})
    return {task.name: task for task in read_tasks(scenario_files(names), "sim")}


@pytest.mark.parametrize("one", BUGS, ids=lambda one: one.name)
def test_a_bug_of_our_own_stack_breaks_the_promise_it_is_about(
    one: Bug, tasks: dict[str, Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    one.put(monkeypatch)
    result = run_one(tasks[one.scenario])
    assert not result.error
    assert one.promise in {
        verdict.promise for verdict in result.verdicts if verdict.state == "broken"
    }
