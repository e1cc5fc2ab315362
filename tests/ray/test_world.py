"""World ray: scenarios on a cluster of three nodes whose processes are really killed."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import ray
from ray._private import services

from sfusion.harness.core.journal import Event, Journal
from sfusion.harness.errors import MissingWorld
from sfusion.harness.lab.promises import RunEvents, Verdict, check_promises
from sfusion.harness.lab.runs import read_tasks, run_all, write_run
from sfusion.harness.lab.runs.effect import check_effect
from sfusion.harness.lab.scenarios import parse_scenarios, scenario_files
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.spreading import RayTasks
from sfusion.harness.lab.worlds import ray as ray_world
from sfusion.harness.lab.worlds import ray_cluster
from sfusion.harness.lab.worlds.ray import RayBackend
from sfusion.harness.lab.worlds.ray_cluster import (
    GivenCluster,
    OwnCluster,
    inherited_path,
    slow_start_allowed,
)
from sfusion.harness.lab.worlds.ray_workers import RayWorker, RayWorkers
from sfusion.harness.lab.worlds.recorder import Recorder
from sfusion.harness.lab.worlds.rollout_bounds import bounds_of
from sfusion.harness.search.chaos.command import count_at_sandbox, play_rounds
from tests.patience import PATIENCE
from tests.ray.actors import until
from tests.warm import warm

EVERYTHING = """
  - in_flight_within_limit
  - every_call_ends_once
  - {outcomes: {ok: all}}
  - grants_in_order
  - {no_starvation: 60s}
  - no_permit_leaked
  - text_is_truthful
"""


def scenario(body: str, promises: str = EVERYTHING) -> Scenario:
    text = f"scenario: tried\nabout: what a test tries\nworlds: [ray]\n{body}\npromises:{promises}"
    return parse_scenarios(text, file="tried.yaml")[0]


def played(
    place: OwnCluster, tried: Scenario, **options: Any
) -> tuple[Journal, dict[str, Verdict]]:
    journal = ray_world.run(tried, cluster=place, **options)
    return journal, {
        verdict.promise: verdict for verdict in check_promises(journal, tried.promises)
    }


def all_held(verdicts: dict[str, Verdict]) -> None:
    assert {name: verdict.sentence for name, verdict in verdicts.items() if not verdict.held} == {}


def left_by_runs() -> list[str]:
    """Return the named actors on the cluster, without limiters of other tests that their last
    clients still use."""
    named = [str(one["name"]) for one in ray.util.list_named_actors(all_namespaces=True)]
    return [name for name in named if not name.startswith(("test_", "rate-limiter"))]


def of(journal: Journal, source: str, event: str) -> list[Event]:
    return [one for one in journal.events if one["source"] == source and one["event"] == event]


def test_every_promise_holds_with_one_worker(place: OwnCluster) -> None:
    tried = scenario("""
tools: {rate_limit: 3}
load: {calls: 30, concurrency: 10, program: {seconds: 20ms, prints: "{call}\\n"}}""")
    journal, verdicts = played(place, tried)
    all_held(verdicts)
    assert journal.header["world"] == "ray"
    assert {one["call"] for one in of(journal, "server", "started")} == {
        f"c{n:04d}" for n in range(1, 31)
    }
    assert {one["worker"] for one in of(journal, "limiter", "granted")} == {"n1-w1"}
    assert {one["endpoint"] for one in of(journal, "client", "attempt_started")} == {
        "http://sandbox-1"
    }
    assert journal.events[0]["event"] == "began"
    assert journal.events[-1]["event"] == "ended"
    until(lambda: left_by_runs() == [])  # a run leaves nothing on the cluster


def test_events_of_all_processes_are_in_the_order_in_which_they_happened(place: OwnCluster) -> None:
    tried = scenario("""
cluster: {nodes: 2}
tools: {rate_limit: 8}
load: {calls: 80, concurrency: 32, program: {prints: "{call}\\n"}}""")
    journal, verdicts = played(place, tried)
    all_held(verdicts)
    times = [event["at"] for event in journal.events]
    assert times == sorted(times)
    chain = [
        ("client", "attempt_started"),
        ("server", "arrived"),
        ("server", "finished"),
        ("client", "attempt_ended"),
    ]
    for number in range(1, 81):
        order = [
            (one["source"], one["event"])
            for one in journal.events
            if one.get("call") == f"c{number:04d}" and (one["source"], one["event"]) in chain
        ]
        assert order == chain


def test_a_killed_worker_loses_only_its_own_calls(place: OwnCluster) -> None:
    tried = scenario("""
cluster: {nodes: 3}
# The other two have room for eight, so this one holds a permit.
tools: {rate_limit: 9, permit_lease: 2}
load: {calls: 60, concurrency: 12, program: {seconds: 1s, prints: "{call}\\n"}}
events: [{after: {in_flight: 9}, kill: n2-w1}]""")
    journal, verdicts = played(place, tried)
    all_held(verdicts)
    assert of(journal, "world", "began")[0]["nodes"] == 3
    assert [one["worker"] for one in of(journal, "world", "worker_died")] == ["n2-w1"]
    lost = of(journal, "world", "lost")
    assert lost
    assert {one["worker"] for one in lost} == {"n2-w1"}
    assert of(journal, "limiter", "expired"), (
        "the permits it held are returned when their lease expires"
    )
    died = of(journal, "world", "worker_died")[0]["at"]
    assert all(
        one["at"] <= died
        for one in journal.events
        if one["source"] == "client" and one["worker"] == "n2-w1"
    )


def test_the_limit_holds_while_a_killed_limiter_restarts(place: OwnCluster) -> None:
    tried = scenario("""
cluster: {nodes: 2}
tools: {rate_limit: 4, permit_lease: 10}
load: {calls: 40, concurrency: 16, program: {seconds: 150ms, prints: "{call}\\n"}}
events: [{after: {in_flight: 4}, kill: limiter}]""")
    journal, verdicts = played(place, tried)
    all_held(verdicts)
    assert [one["life"] for one in of(journal, "world", "limiter_died")] == [1]
    assert [one["life"] for one in of(journal, "world", "limiter_started")] == [1, 2]
    permits = {one["permit"].partition("-")[0] for one in of(journal, "limiter", "granted")}
    assert len(permits) == 2, "granted by two incarnations of the limiter"


def test_a_limiter_that_is_slower_to_end_than_its_successor_to_start_dies_once() -> None:
    """Its process may outlive its node for a moment; the journal then said that the new one had
    died."""
    tried = scenario("load: {calls: 1}")
    journal = Journal.begin(scenario="tried", cell="", seed=0, world="ray")
    backend = RayBackend(
        tried,
        journal,
        GivenCluster.__new__(GivenCluster),
        [],
        bounds_of(tried),
        "driver",
        "127.0.0.1",
    )
    backend.recorder = Recorder(journal, time.monotonic, 0.0)
    backend._workers = RayWorkers(tried, backend.recorder, local=True)
    backend._on_connect("limiter", 1.0)
    backend._on_connect("limiter", 2.0)
    backend._on_disconnect("limiter")  # of the first
    told = [("limiter_started", 1), ("limiter_died", 1), ("limiter_started", 2)]
    assert [(one["event"], one["life"]) for one in journal.events] == told
    backend._on_disconnect("limiter")
    assert [(one["event"], one["life"]) for one in journal.events] == [*told, ("limiter_died", 2)]


def test_killing_a_node_kills_its_workers_and_the_limiter(place: OwnCluster) -> None:
    """The limiter is on node-1: both die, and the limiter restarts on the other node."""
    tried = scenario("""
cluster: {nodes: 2}
tools: {rate_limit: 2, permit_lease: 2}
load: {calls: 24, concurrency: 8, program: {seconds: 200ms, prints: "{call}\\n"}}
events: [{after: {in_flight: 2}, kill: node-1}]""")
    place.nodes(2, {1})
    before = {one["NodeID"] for one in ray.nodes() if one["Alive"]}
    journal, verdicts = played(place, tried)
    all_held(verdicts)
    assert [one["worker"] for one in of(journal, "world", "worker_died")] == ["n1-w1"]
    assert [one["life"] for one in of(journal, "world", "limiter_started")] == [1, 2]
    until(lambda: len(before - {one["NodeID"] for one in ray.nodes() if one["Alive"]}) == 1)


def test_the_permits_of_a_killed_driver_are_recovered(place: OwnCluster) -> None:
    """All workers die with their driver; the limiter is not the driver's and gets every permit
    back."""
    tried = scenario(
        """
cluster: {nodes: 2}
tools: {rate_limit: 3, permit_lease: 2}
load: {calls: 10000, concurrency: 8, program: {seconds: 300ms}}
events: [{after: {arrivals: 7}, kill: driver}]""",
        """
  - in_flight_within_limit
  - no_permit_leaked""",
    )
    journal, verdicts = played(place, tried)
    all_held(verdicts)
    assert {one["worker"] for one in of(journal, "world", "worker_died")} == {"n1-w1", "n2-w1"}
    assert of(journal, "limiter", "expired")
    assert not of(journal, "world", "limiter_died")


def test_a_limit_that_is_not_enforced_is_found_broken(place: OwnCluster) -> None:
    tried = scenario(
        """
tools: {rate_limit: 3, enable_global_rate_limit: false}
load: {calls: 24, concurrency: 12, program: {seconds: 200ms}}""",
        """
  - {in_flight_within_limit: {limit: 3}}
  - every_call_ends_once
  - no_permit_leaked""",
    )
    _, verdicts = played(place, tried)
    assert verdicts["in_flight_within_limit"].state == "broken"
    assert (
        "4 attempts were in flight; the limit is 3" in verdicts["in_flight_within_limit"].sentence
    )
    assert verdicts["every_call_ends_once"].held
    assert verdicts["no_permit_leaked"].state == "unknown", "there is no limiter to observe"


def test_cancelled_calls_leak_no_permit(place: OwnCluster) -> None:
    tried = scenario(
        """
tools: {rate_limit: 2, permit_lease: 20}
load:
  calls: 40
  concurrency: 16
  program: {seconds: 200ms}
  cancel: {share: 0.5, after: {uniform: [0ms, 600ms]}}
events: [{after: {ended: 6}, cancel: 1.0}]""",
        """
  - in_flight_within_limit
  - every_call_ends_once
  - {outcomes: {ok: some, cancelled: some}}
  - no_permit_leaked""",
    )
    journal, verdicts = played(place, tried)
    all_held(verdicts)
    assert not of(journal, "limiter", "expired"), "released at once, not by expiry"


def test_a_worker_paused_for_longer_than_its_lease_continues_afterwards(place: OwnCluster) -> None:
    tried = scenario("""
cluster: {nodes: 2}
tools: {rate_limit: 2, permit_lease: 2}
load: {calls: 20, concurrency: 8, program: {seconds: 150ms, prints: "{call}\\n"}}
events: [{at: 400ms, pause: n2-w1, seconds: 2500ms}]""")
    journal, verdicts = played(place, tried)
    all_held(verdicts)
    # The signals are sent a moment after the pause is noted, and before its end is: only its length
    # is certain.
    paused = of(journal, "world", "worker_paused")[0]["at"]
    own = [
        one["at"]
        for one in journal.events
        if one.get("worker") == "n2-w1" and one["source"] == "client"
    ]
    times = [paused, *(at for at in own if at > paused)]
    assert max(later - at for at, later in pairwise(times)) > 2.4, (
        "a stopped process does nothing, and then continues"
    )


def test_a_stopped_limiter_takes_no_permits_from_running_attempts(place: OwnCluster) -> None:
    """By the clock of the machine all leases had expired when it continued: it granted the same
    permits again."""
    tried = scenario("""
# The lease is not much shorter than the pause: a busy machine may stop the worker too.
tools: {rate_limit: 2, permit_lease: 1.8}
load: {calls: 4, concurrency: 4, program: {seconds: 2s, prints: "{call}\\n"}}
events: [{after: {in_flight: 2}, pause: limiter, seconds: 1900ms}]""")
    journal, verdicts = played(place, tried)
    all_held(verdicts)
    assert of(journal, "world", "limiter_resumed")
    assert of(journal, "limiter", "expired") == []
    assert count_at_sandbox(journal).peak == 2


def test_a_round_of_chaos_is_played_on_the_cluster_and_in_sim(place: OwnCluster) -> None:
    (one,) = play_rounds(1, range(8, 9), 1, place)
    assert (one.problems, one.disagreements) == ([], [])
    assert {"crash", "limiter_died"} <= {event["event"] for event in one.real.journal.events}


def test_the_fake_can_run_on_a_node_and_time_can_be_scaled(place: OwnCluster) -> None:
    tried = scenario(
        """
time_scale: 0.01
tools: {default_timeout: 30}
load: {calls: 4, concurrency: 4, program: {seconds: 20s, prints: "{call}\\n"}}""",
        "\n  - {outcomes: {ok: all}}",
    )
    journal, verdicts = played(place, tried, sandbox_on="node")
    all_held(verdicts)
    began = {one["call"]: one["at"] for one in of(journal, "server", "started")}
    took = [one["at"] - began[one["call"]] for one in of(journal, "server", "finished")]
    assert len(took) == 4
    assert all(0.19 < seconds < 20 for seconds in took), (
        "the hundredth of 20 s, or longer on a slow machine"
    )


class SlowToRecord(ray_world._SandboxProcess):
    """Sandboxes whose process loses the processor between an answer and its event."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        note = self._recorder.note

        def slow_note(source: str, event: str, **facts: Any) -> None:
            if event == "answered":
                time.sleep(0.5)
            note(source, event, **facts)

        self._recorder.note = slow_note  # type: ignore[method-assign]


def test_a_run_ends_after_the_events_of_its_last_answers(
    place: OwnCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of large ones: a small answer is recorded before it is sent."""
    monkeypatch.setattr(ray_world, "_actor_class", ray.remote(num_cpus=0)(SlowToRecord))
    large = """load: {calls: 1, program: {prints: "{fill:262144}\\n"}}"""
    journal, verdicts = played(
        place, scenario(large, "\n  - {outcomes: {ok: all}}"), sandbox_on="node"
    )
    all_held(verdicts)
    assert len(of(journal, "server", "answered")) == 1


def test_rollouts_run_in_worker_processes_and_those_of_a_killed_one_are_lost(
    place: OwnCluster,
) -> None:
    tried = scenario(
        """
cluster: {workers_per_node: 2}
tools: {permit_lease: 2}
rollouts:
  count: 4
  think: 10ms
  turns:
    - {programs: [{seconds: 1500ms, prints: "3\\n"}]}
    - {say: The answer is 3.}
events: [{after: {in_flight: 4}, kill: worker-2}]""",
        """
  - {rollout_ends: answered}
  - lengths_consistent
  - every_call_ends_once""",
    )
    journal, verdicts = played(place, tried)
    all_held(verdicts)
    assert {one["rollout"] for one in of(journal, "world", "rollout_ended")} == {"r001", "r003"}
    assert {one["rollout"] for one in of(journal, "world", "rollout_lost")} == {"r002", "r004"}
    assert {one["call"] for one in of(journal, "world", "lost")} == {"r002.t1.1", "r004.t1.1"}


class SilentTool:
    """Another tool class: it reports nothing about its attempts and returns a plain string."""

    name = "code_interpreter"

    def __init__(self, config: dict[str, Any], tool_schema: Any) -> None:
        self._url = config["sandbox_fusion_url"]
        self.tool_schema = tool_schema

    async def create(self, instance_id: str, **_: Any) -> str:
        return instance_id

    async def execute(self, instance_id: str, parameters: dict[str, Any], **_: Any) -> str:
        import aiohttp

        body = {"language": "python", **parameters}
        async with aiohttp.ClientSession() as session, session.post(self._url, json=body) as answer:
            return str((await answer.json())["run_result"]["stdout"])

    async def calc_reward(self, instance_id: str, **_: Any) -> float:
        return 0.0

    async def release(self, instance_id: str, **_: Any) -> None: ...


def test_a_tool_that_cannot_be_created_is_reported_and_passes_no_promise(place: OwnCluster) -> None:
    tried = scenario(
        "tools: [{class_name: tests.ray.no_such_module.Tool, config: {}}]\nload: {calls: 1}"
    )
    journal, verdicts = played(place, tried)
    assert {verdict.state for verdict in verdicts.values()} == {"unknown"}
    assert all("no_such_module" in verdict.sentence for verdict in verdicts.values())
    assert "n1-w1 could not create its tools" in of(journal, "world", "stuck")[0]["text"]
    assert "no_such_module" in of(journal, "world", "stuck")[0]["text"]


class SlowToStart(SilentTool):
    """Like a tool that starts processes of its own when it is first used."""

    started = False

    async def execute(self, instance_id: str, parameters: dict[str, Any], **rest: Any) -> str:
        if not self.started:
            await asyncio.sleep(3)
            self.started = True
        return await super().execute(instance_id, parameters, **rest)


def test_another_tool_is_warm_before_faults_and_events_begin(place: OwnCluster) -> None:
    tried = scenario(
        """
tools: [{class_name: tests.ray.test_world.SlowToStart, config: {}}]
sandbox:
  faults:
    - {name: odd, first: 1, what: {delay: 5ms}}
    - {name: early, between: [0s, 2900ms], what: {delay: 1ms}}
load: {calls: 40, concurrency: 2, program: {seconds: 100ms}}
events: [{after: {arrivals: 5}, wedge: sandbox, seconds: 1s}]""",
        "\n  - every_call_ends_once",
    )
    journal, verdicts = played(place, tried)
    all_held(verdicts)
    assert check_effect(tried, RunEvents(journal)) == []
    assert {one["call"] for one in of(journal, "server", "strike") if one["rule"] == "odd"} <= {
        "c0001",
        "c0002",
    }
    wedged = of(journal, "server", "wedge")[0]["at"]
    arrived = [one["at"] for one in of(journal, "server", "arrived")]
    assert len(arrived) == 40, "the warm-up call is not in the journal"
    assert min(arrived) < wedged < max(arrived), "the event meets requests"


def test_what_does_not_start_in_time_is_named(place: OwnCluster) -> None:
    tried = scenario(
        "tools: [{class_name: tests.ray.test_world.SilentTool, config: {}}]\nload: {calls: 1}"
    )
    raylet = place._cluster.head_node.all_processes["raylet"][0].process
    raylet.send_signal(signal.SIGSTOP)
    try:
        _, verdicts = played(place, tried, start_timeout=1)
    finally:
        raylet.send_signal(signal.SIGCONT)
    expected = r"n1-w1 did not start within 1 s \(--start-timeout\)"
    assert all(re.search(expected, verdict.sentence) for verdict in verdicts.values())


def test_workers_that_their_driver_has_not_created_in_time_are_reported() -> None:
    """There was no first one to name, which was a ValueError."""
    tried = scenario("load: {calls: 1}")
    recorder = Recorder(
        Journal.begin(scenario="tried", cell="", seed=0, world="ray"), time.monotonic, 0.0
    )
    assert RayWorkers(tried, recorder, local=True).unready == "the workers did not start"


def test_a_signal_to_a_worker_that_has_just_died_is_dropped() -> None:
    """Its journal connection may still be open; the whole run ended with a ProcessLookupError."""
    died = subprocess.Popen(["true"])
    died.wait()
    worker = RayWorker("n1-w1", "a node", None, scenario("load: {calls: 1}"), local=True)
    worker.pid = died.pid
    asyncio.run(worker.resume())


def test_workers_of_our_own_cluster_are_as_important_as_their_driver(place: OwnCluster) -> None:
    """With the niceness that Ray gives them, they hardly start on a busy machine."""

    @ray.remote(num_cpus=0)
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, 0)

    assert ray.get(niceness.remote()) == os.getpriority(os.PRIO_PROCESS, 0)


def test_processes_of_our_own_cluster_import_what_this_one_can(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """A checkout that was neither installed nor the current directory did not reach the workers."""
    (tmp_path / "beside_the_scenario.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    before = dict(os.environ)
    with inherited_path():
        subprocess.run([sys.executable, "-c", "import beside_the_scenario"], check=True)
    assert dict(os.environ) == before


def test_a_node_may_take_longer_to_start_than_ray_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray gave up after 30 s, of which its agents had used 28 for their imports."""
    answers = iter([RuntimeError("not yet"), RuntimeError("not yet"), {"labels": {}}])

    def get_node(*_: str) -> Any:
        answer = next(answers)
        if isinstance(answer, RuntimeError):
            raise answer
        return answer

    monkeypatch.setattr(services, "get_node", get_node)
    monkeypatch.setattr(ray_cluster, "_LOOK_SECONDS", 0.0)
    with slow_start_allowed():
        assert services.get_node("127.0.0.1:6379", "id") == {"labels": {}}
    assert services.get_node is get_node


def test_what_other_tools_do_not_report_is_not_applicable_and_their_limit_is_counted_at_the_sandbox(
    place: OwnCluster,
) -> None:
    tried = scenario(
        """
cluster: {workers_per_node: 2}
tools: [{class_name: tests.ray.test_world.SilentTool, config: {rate_limit: 2}}]
load: {calls: 8, concurrency: 4, program: {seconds: 1s, prints: "{call}\\n"}}""",
        """
  - in_flight_within_limit
  - every_call_ends_once
  - {outcomes: {ok: all}}
  - no_permit_leaked
  - grants_in_order""",
    )
    _, verdicts = played(place, tried)
    states = {name: verdict.state for name, verdict in verdicts.items()}
    assert states == {
        "in_flight_within_limit": "broken",  # counted at the sandbox
        "every_call_ends_once": "held",
        "outcomes": "held",  # by the sandbox's ledger
        "no_permit_leaked": "not_applicable",
        "grants_in_order": "not_applicable",
    }


# -- the command --


def sfusion(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [warm("sfusion"), "run", "--world", "ray", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


def test_a_given_cluster_is_used_and_left_as_it_was(place: OwnCluster, tmp_path: Path) -> None:
    files = []
    for name, promises in (
        ("good", "every_call_ends_once, no_permit_leaked"),
        ("bad", "{outcomes: {throttled: all}}"),
    ):
        files.append(tmp_path / f"{name}.yaml")
        files[-1].write_text(
            f"scenario: {name}\nabout: on a cluster that is there\nworlds: [ray]\n"
            f"load: {{calls: 4, concurrency: 2}}\npromises: [{promises}]\n"
        )
    ended = sfusion(*map(str, files), "--ray-address", place.address, "-v")
    assert (ended.returncode, ended.stderr) == (1, "")
    assert "[1/2] held    good" in ended.stdout
    assert "[2/2] broken  bad" in ended.stdout
    until(lambda: left_by_runs() == [])


# -- work spread over the cluster --


def square_elsewhere(marks: Path, doomed: str, number: int) -> int:
    """Square a number when one was reported; on the ``doomed`` node report the number and never
    return."""
    if ray.get_runtime_context().get_node_id() == doomed:
        (marks / str(number)).touch()
        signal.pause()
    until(lambda: any(marks.iterdir()))
    return number * number


def test_what_a_killed_node_was_running_is_handed_out_again(
    place: OwnCluster, tmp_path: Path
) -> None:
    _, doomed = place.nodes(2, {2})
    found: list[int] = []
    work = partial(square_elsewhere, tmp_path, doomed)
    spread = threading.Thread(target=lambda: found.extend(RayTasks().map(work, range(8))))
    spread.start()
    until(lambda: any(tmp_path.iterdir()))
    place.kill_node(doomed)
    spread.join()
    assert found == [number * number for number in range(8)]
    # Until then, Ray may send the driver of a later test to this node.
    until(lambda: doomed not in {one["NodeID"] for one in ray.nodes() if one["Alive"]})


def test_runs_spread_over_a_cluster_write_the_bytes_of_local_ones(
    place: OwnCluster, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for result in run_all(read_tasks(scenario_files(["single-node"]), "sim")):
        write_run(result, here)
    spread = [
        "single-node",
        "--on",
        "ray",
        "--ray-address",
        place.address,
        "--out",
        str(there),
    ]
    command = [warm("sfusion"), "run", *spread]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert written(here) == written(there)
    assert len(written(here)) == 3


def test_trainings_spread_over_a_cluster_learn_what_local_ones_learn(
    place: OwnCluster, tmp_path: Path
) -> None:
    (tmp_path / "toy.yaml").write_text(
        "scenario: toy\nabout: A toy learns.\ntools: {max_attempts: 1}\ntraining: {steps: "
        "2, prompts: 1, group: 3}\n"
        "sandbox: {faults: [{name: lossy, probability: 0.5, what: {status: 500}}]}\n"
    )
    command = [warm("sfusion"), "train", str(tmp_path / "toy.yaml"), "--seeds", "3", "--json", "-"]
    answers = []
    for where in (["--jobs", "1"], ["--on", "ray", "--ray-address", place.address]):
        ended = subprocess.run([*command, *where], capture_output=True, text=True, timeout=PATIENCE)
        assert ended.returncode == 0, ended.stderr
        answers.append(ended.stdout)
    assert '"seed": 2' in answers[0]
    assert answers[0] == answers[1]


def written(folder: Path) -> dict[str, str]:
    """Return the files of runs by their path, without how long the runs took.

    A page says it, too, so that its digest differs.
    """
    timed = re.compile(r',?\s*"(wall_seconds|verdict.json|report.html)": "?[\w.]+"?')
    paths = [path for path in folder.rglob("*") if path.suffix in (".ndjson", ".json", ".yaml")]
    return {str(path.relative_to(folder)): timed.sub("", path.read_text()) for path in paths}


def test_nodes_of_a_given_cluster_are_not_killed() -> None:
    tried = scenario("cluster: {nodes: 2}\nload: {calls: 1}\nevents: [{at: 1s, kill: node-2}]")
    with pytest.raises(
        MissingWorld,
        match=r"tried kills node-2, but sfusion does not kill nodes of a given cluster",
    ):
        GivenCluster.check(object.__new__(GivenCluster), [tried])


def test_an_unreachable_cluster_gives_exit_code_3() -> None:
    with socket.socket() as taken:  # bound, but not listening
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = sfusion("single-node", "--ray-address", address)
    assert ended.returncode == 3
    assert ended.stderr == (
        f"no Ray cluster answers at {address}: Connection refused; start it, or give "
        "another address\n"
    )
