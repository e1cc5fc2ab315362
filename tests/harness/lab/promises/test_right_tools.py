"""Right tools that word, lay out or cut their texts in another way are not accused by promises
about texts."""

from __future__ import annotations

from sfusion.harness.lab.runs import adapt_tasks, read_tasks, run_one
from sfusion.harness.lab.scenarios import scenario_files
from tests.cases import every
from tests.proof.right_tools import RIGHT_TOOLS
from tests.reference_tool import GoodTool, tool_config

TASKS = read_tasks(
    scenario_files(["killed-with-137", "silent-truncation", "proxy-in-between"]), "sim"
)


@every(RIGHT_TOOLS.items(), lambda case: case[0])
def test_no_right_tool_is_accused_whatever_its_words(case: tuple[str, type[GoodTool]]) -> None:
    tasks = adapt_tasks(TASKS, tools=tool_config(case[1], states_outcomes=False))
    found = {
        (task.name, one.promise)
        for task in tasks
        for one in run_one(task).verdicts
        if one.state == "broken"
    }
    assert {one for one in found if one[1] not in ("outcomes", "attempts_per_call")} == set()
