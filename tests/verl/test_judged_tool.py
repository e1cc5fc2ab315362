"""verl's own tool, last shipped in 0.7.1, judged in world ray: which promises name its defects
(docs/proof.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sfusion.harness.lab.runs import RunResult, adapt_tasks, read_tasks, run_one
from sfusion.harness.lab.scenarios import scenario_files
from sfusion.harness.lab.worlds import ray as ray_world
from sfusion.harness.lab.worlds.ray_cluster import RayCluster, open_cluster
from sfusion_tools.tool_registry import read_entries
from tests.verl.releases import NEW
from tests.verl.tools import THEIRS, verl_config, write_tools

if NEW:
    pytest.skip("verl has had no Sandbox Fusion tool since 0.8", allow_module_level=True)

# Every worker and every tool's own actor imports verl, which takes long on a busy machine.
START_SECONDS = 500.0
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def place() -> Iterator[RayCluster]:
    """A Ray cluster for all runs."""
    cluster = open_cluster()
    yield cluster
    cluster.close()


def judged(name: str, place: RayCluster, folder: Path) -> RunResult:
    """Run a bundled scenario with verl's tool."""
    file = write_tools(
        folder / "tools.yaml", verl_config("http://127.0.0.1:8080/run_code", num_workers=64), THEIRS
    )
    (task,) = adapt_tasks(read_tasks(scenario_files([name]), "ray"), tools=read_entries(file))
    # Each worker costs seconds to start, and none of these defects needs a second one.
    task = replace(task, scenario=task.scenario.changed(cluster={}))
    return run_one(
        task, player=lambda cell: ray_world.run(cell, cluster=place, start_timeout=START_SECONDS)
    )


@pytest.mark.parametrize(
    ("name", "promises"),
    [
        pytest.param(
            "single-node", {"connections_reused": "; 0 of "}, id="not accused where it is right"
        ),
        pytest.param("limiter-switched-off", {"tool_never_raises": "AttributeError"}, id="a"),
        pytest.param("null-stdout", {"stderr_shown": "the tool message is ''"}, id="b"),
        pytest.param("crash-and-restart", {"outcomes": "infrastructure"}, id="g"),
        pytest.param("cancel-storm", {"every_call_ends_once": "after it had ended"}, id="j"),
    ],
)
def test_a_defect_of_the_old_tool_breaks_the_promise_that_names_it(
    place: RayCluster, tmp_path: Path, name: str, promises: dict[str, str]
) -> None:
    result = judged(name, place, tmp_path)
    assert result.error == ""
    told = {
        verdict.promise: verdict.sentence
        for verdict in result.verdicts
        if verdict.state == "broken"
    }
    assert (
        told.keys() == promises.keys() if name == "single-node" else told.keys() >= promises.keys()
    ), told
    assert all(words in told[promise] for promise, words in promises.items()), told
