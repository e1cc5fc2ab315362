"""The guard in simulated runs: it trips, recovers, and leaves nothing behind for the next run."""

from __future__ import annotations

from typing import Any

import pytest

from sfusion.harness.lab.worlds import sim
from sfusion.harness.lab.worlds.worker_rollouts import Rollouts, ScriptedModel
from sfusion_tools.rollout import RolloutLimits
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool
from tests.harness.lab.promises.scenes import scene, verdicts
from tests.sfusion_tools.sandbox.helpers import in_virtual_time

OUTAGE = {
    "cluster": {"nodes": 2, "workers_per_node": 1},
    "sandbox": {"faults": [{"name": "outage", "between": ["10s", "30s"], "what": {"status": 500}}]},
    "load": {
        "calls": 160,
        "concurrency": 4,
        "think": "1s",
        "program": {"seconds": "1s", "prints": "ok\n"},
    },
}


def guarded(then: str) -> Any:
    guard = {"window": 20, "min_calls": 10, "probe_after": 8, "then": then}
    return scene(**OUTAGE, tools={"rate_limit": 4, "max_attempts": 1, "guard": guard})


@pytest.mark.parametrize("then", ["warn", "fail"])
def test_each_worker_notices_an_outage_and_its_end_once(then: str) -> None:
    journal = sim.run(guarded(then))
    logs = [(e["at"], e["level"], e["text"]) for e in journal.events if e["event"] == "log"]
    assert [level for _, level, _ in logs] == ["error", "error", "warning", "warning"]
    assert all(10 <= at <= 30 for at, _, _ in logs[:2])
    assert all(30 <= at <= 45 for at, _, _ in logs[2:])
    returned = [event for event in journal.events if event["event"] == "returned"]
    assert len(returned) == 160
    assert {event["outcome"] for event in returned[-20:]} == {"ok"}
    raised = [event for event in returned if event.get("raised")]
    assert bool(raised) is (then == "fail")
    assert {event["raised"] for event in raised} <= {"GuardTripped"}
    assert verdicts(journal)["tool_never_raises"].held, "the guard is meant to end the job"
    sent = {event["call"] for event in journal.events if event["event"] == "arrived"}
    assert len(sent) < 160 if then == "fail" else len(sent) == 160
    assert list(sim.run(guarded(then)).lines()) == list(journal.lines()), (
        "the second run begins with a new guard"
    )


TURNS = {
    "turns": [{"programs": [{"prints": "1\n"}]}],
    "repeat": True,
    "limits": {"max_assistant_turns": 9},
}


def test_a_rollout_that_the_guard_stops_ends_as_failed() -> None:
    tools = {"rate_limit": 4, "guard": {"window": 4, "min_calls": 4, "then": "fail"}}
    faults = {"faults": [{"what": {"status": 500}}]}
    journal = sim.run(scene(tools=tools, sandbox=faults, rollouts={"count": 4, **TURNS}, load=None))
    ended = [event for event in journal.events if event["event"] == "rollout_ended"]
    assert [event["state"] for event in ended] == ["failed"] * 4
    assert {event.get("raised") for event in journal.events if event["event"] == "returned"} >= {
        "GuardTripped"
    }
    assert all("sfusion doctor" in event["failure"] for event in ended)


def test_the_guard_does_not_end_a_worker() -> None:
    """On a cluster, an error of a worker would end the whole run."""
    config = {
        "sandbox_fusion_url": "http://127.0.0.1:1",
        "guard": {"window": 1, "then": "fail"},
        "max_attempts": 1,
    }
    guarded = scene(load=None, rollouts=TURNS, tools={"default_timeout": 1})

    async def go() -> str:
        tool = SandboxFusionTool(config)
        assert guarded.rollouts is not None
        model = ScriptedModel(guarded.rollouts, 0, tool.name, lambda *_, **__: None)
        rollouts = Rollouts(guarded, model, tool, RolloutLimits(), lambda *_, **__: None)
        request = rollouts.request("r001")
        await rollouts.run(request)
        return request.state.value

    assert in_virtual_time(go) == "failed"
