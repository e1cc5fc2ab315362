"""World wall: one process on a running clock, in which tools that block or use threads are
played."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from typing import Any

import pytest
import requests

from sfusion.harness.core.journal import Journal
from sfusion.harness.lab.runs import RunResult, Task, adapt_tasks, read_tasks, run_one
from sfusion.harness.lab.scenarios import Scenario, parse_scenarios, scenario_files
from sfusion.harness.lab.shapes.as_tool import tools_of
from sfusion.harness.lab.worlds.replacing import fast_clock
from sfusion.harness.lab.worlds.wall_journals import merged
from sfusion_tools.base_tool import BaseTool
from sfusion_tools.sandbox.tool import SandboxFusionTool
from sfusion_tools.schemas import ToolResponse
from tests import ROOT


class BlockingTool(BaseTool):
    """Blocks the event loop while it waits for the sandbox."""

    def __init__(self, config: dict[str, Any], tool_schema: Any = None) -> None:
        super().__init__(config, tool_schema or SandboxFusionTool.default_schema)

    def _post(self, code: str) -> Any:
        body = {"code": code, "language": "python"}
        while (
            answer := requests.post(self.config["sandbox_fusion_url"], json=body, timeout=600)
        ).status_code == 503:
            time.sleep(0.5)
        return answer.json()

    async def execute(self, instance_id: str, parameters: dict[str, Any], **more: Any) -> Any:
        return ToolResponse(text=self._post(parameters["code"])["run_result"]["stdout"]), None, {}


SCENARIO = """
scenario: short
about: A few calls, the first of which meet a fault; the sandbox restarts on the way.
seed: 3
cluster: {nodes: 1, workers_per_node: 2}
tools: TOOLS
sandbox:
  faults: [{name: busy, first: 2, what: {status: 503}}]
events: EVENTS
load: {calls: 12, concurrency: 4, program: {seconds: 0.5}}
promises: [every_call_ends_once, {outcomes: {ok: some}}]
"""


def read(tools: str, events: str = "[]") -> Scenario:
    (scenario,) = parse_scenarios(
        SCENARIO.replace("TOOLS", tools).replace("EVENTS", events), file="short.yaml"
    )
    return scenario


def play(scenario: Scenario) -> RunResult:
    return run_one(Task(scenario, "wall", trusted=True))


def test_our_tool_keeps_its_promises_and_a_killed_worker_is_dead() -> None:
    # Two seconds of this process: a busy machine must have time to renew the leases.
    result = play(read("{rate_limit: 2, permit_lease: 10}", "[{at: 1s, kill: worker-2}]"))
    assert result.state == "held", [(one.promise, one.sentence) for one in result.verdicts]
    events = result.journal.events
    assert [event["at"] for event in events] == sorted(event["at"] for event in events)
    assert {event["event"] for event in events} >= {"strike", "worker_died", "granted", "answered"}
    assert max(event["in_flight"] for event in events if event["event"] == "arrived") == 2


def test_a_tool_that_blocks_its_loop_is_served() -> None:
    result = play(
        read(f"[{{class_name: {__name__}.BlockingTool, config: {{sandbox_fusion_url: x}}}}]")
    )
    assert result.state == "held", [(one.promise, one.sentence) for one in result.verdicts]
    assert sum(event["event"] == "returned" for event in result.journal.events) == 12


def test_a_function_plays_scenarios_as_a_tool() -> None:
    """A synchronous one here; an asynchronous one in sim."""
    clients = f"{ROOT / 'tests/harness/trial/clients'}/"
    for name, world in (("threaded.py:run", "wall"), ("shapes.py:asynchronous", "sim")):
        tools, not_sim = tools_of(clients + name)
        assert bool(not_sim) == (world == "wall")
        (task,) = adapt_tasks([Task(read("{rate_limit: 2}"), world, trusted=True)], tools=tools)
        result = run_one(task)
        assert [one.state for one in result.verdicts if one.promise == "every_call_ends_once"] == [
            "held"
        ]
        returned = [event for event in result.journal.events if event["event"] == "returned"]
        assert (len(returned), {event["reward"] for event in returned}) == (12, {None})


def test_what_the_world_cannot_do_is_left_out_with_a_reason() -> None:
    scenario = read("{rate_limit: 2}")
    assert scenario.not_for("wall") is None
    assert scenario.changed(schedule={"random": 1}).not_for("wall") == "a schedule needs world sim"
    foreign = scenario.changed(
        tools=[{"class_name": "x.Y"}], events=[{"at": "1s", "kill": "worker-2"}]
    )
    assert (
        foreign.not_for("wall")
        == "a thread of another tool cannot be killed; world ray kills processes"
    )
    assert (
        scenario.changed(worlds=["ray"]).not_for("wall")
        == "not for world wall: its file does not list sim"
    )


def test_a_hundred_bundled_scenarios_play_a_synchronous_function() -> None:
    tools, _ = tools_of(f"{ROOT / 'tests/harness/trial/clients/threaded.py'}:run")
    tasks = adapt_tasks(read_tasks(scenario_files([]), "wall"), tools=tools)
    assert (
        len({task.scenario.scenario for task in tasks if task.scenario.not_for("wall") is None})
        >= 100
    )


def test_every_wait_of_a_fast_clock_is_short_and_every_clock_sees_it() -> None:
    real = time.monotonic
    with fast_clock(2000.0):
        before = time.monotonic()
        time.sleep(100.0)
        asyncio.run(asyncio.sleep(100.0))
        assert not threading.Event().wait(100.0)
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(100.0)
            assert server.gettimeout() == pytest.approx(100.0)
            with pytest.raises(TimeoutError):
                server.accept()
        # One wait that was not shortened would be 200,000 s on this clock.
        assert 400.0 <= time.monotonic() - before < 200_000.0
    assert time.monotonic is real


def test_what_several_clients_left_is_added_up() -> None:
    """Except connections: each client sees those of all."""
    journals = []
    for name, busy, connections in (("a", 1, 3), ("b", 2, 5)):
        journal = Journal.begin(scenario="s", cell="", seed=0, world="wall")
        journal.note(0.0, "world", "began")
        left = {"busy": busy, "connections": connections, "instances": [name], "tasks": [name]}
        journal.note(busy, "world", "client_left", **left)
        journal.note(busy, "world", "ended")
        journals.append(journal)
    began, left, ended = merged(journals).events
    assert (began["event"], left["event"], ended["event"]) == ("began", "client_left", "ended")
    assert (left["busy"], left["connections"], ended["at"]) == (3, 5, 2)
    assert left["instances"] == left["tasks"] == ["a", "b"]
