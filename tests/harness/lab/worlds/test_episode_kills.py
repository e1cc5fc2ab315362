"""Clients that are killed: nothing of them goes on, nothing is cleaned up, and others play on."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from sfusion.harness.core.journal import Journal
from sfusion.harness.errors import WorldError
from sfusion.harness.lab.episodes import EpisodeTask
from sfusion.harness.lab.episodes.own_client import episode as own_client
from sfusion.harness.lab.promises import RunEvents
from sfusion.harness.lab.promises.registry import check_run
from sfusion.harness.lab.scenarios import Scenario, parse_scenarios
from sfusion.harness.lab.shapes import shape_of
from sfusion.harness.lab.shapes.episode import EpisodeClient
from sfusion.harness.lab.worlds.episodes import play_episodes
from sfusion.harness.lab.worlds.mortal import Life, MortalLoop, start_in
from sfusion.harness.lab.worlds.virtual_time import run_virtually
from tests.harness.lab.worlds import episode_clients as clients

TEXT = """
scenario: killed
about: One of two workers is killed.
cluster: {workers_per_node: 2}
sandbox: {face: daytona}
episodes: {count: 6, concurrency: 4, settle: 0, steps: [{exec: {seconds: 2s}}]}
events: [{at: 1s, kill: worker-2}]
"""


def scene(text: str = TEXT, **changes: Any) -> Scenario:
    (scenario,) = parse_scenarios(text, file="<test>")
    return scenario.changed(**changes)


def endings(journal: Journal) -> dict[str, str]:
    return {
        event["episode"]: event["end"]
        for event in journal.events
        if event["event"] == "episode_ended"
    }


def broken(journal: Journal) -> dict[str, str]:
    verdicts, _ = check_run(RunEvents(journal), [])
    return {verdict.promise: verdict.sentence for verdict in verdicts if verdict.state == "broken"}


def test_a_killed_client_runs_no_finally_and_others_play_what_is_left() -> None:
    cleaned: list[str] = []

    async def play(task: EpisodeTask) -> Any:
        try:
            return await clients.plain(task)
        finally:
            cleaned.append(task.id)

    journal = play_episodes(scene(), "sim", play)
    ends = endings(journal)
    killed = [name for name, end in ends.items() if end == "killed"]
    assert killed == ["e0002", "e0004"]
    assert [ends[name] for name in ("e0001", "e0003", "e0005", "e0006")] == ["returned"] * 4
    assert cleaned[:4] == ["e0001", "e0003", "e0005", "e0006"], "before the run was over"


def test_the_connections_of_a_killed_client_are_cut() -> None:
    journal = play_episodes(scene(), "sim", clients.plain)
    commands = {
        event["call"]: event
        for event in journal.events
        if event["event"] in ("answered", "unanswered") and ".s" in str(event["call"])
    }
    assert commands["e0002.s1"]["client_gone"]
    assert not commands["e0001.s1"]["client_gone"]


def test_a_sandbox_outlives_a_kill_unless_it_ends_by_itself() -> None:
    left = broken(play_episodes(scene(), "sim", clients.keeps_for_ever))
    assert set(left) == {"every_sandbox_deleted"}
    assert "the client of e0002 was killed: nobody deletes sandbox" in left["every_sandbox_deleted"]
    for ttl, is_short in (("30m", True), ("2h", False)):
        sandbox = {"face": "daytona", "model": {"kind": "lifecycle", "ttl": ttl}}
        journal = play_episodes(scene(sandbox=sandbox), "sim", clients.keeps_for_ever)
        assert (broken(journal) == {}) == is_short, ttl
    stops_idle = play_episodes(scene(), "sim", clients.plain)
    assert broken(stops_idle) == {}, "Daytona stops what nobody uses after 15 minutes"
    assert broken(play_episodes(scene(), "sim", own_client)) == {}


def test_a_worker_that_is_started_again_plays_on_and_a_run_is_the_same_twice() -> None:
    event = {"at": "1s", "kill": "node-1", "seconds": 3}
    first = play_episodes(scene(events=[event]), "sim", own_client)
    ends = list(endings(first).values())
    assert (ends.count("killed"), ends.count("returned")) == (4, 2)
    started = [event["at"] for event in first.events if event["event"] == "worker_started"]
    assert started == [4.0, 4.0]
    assert first.digest() == play_episodes(scene(events=[event]), "sim", own_client).digest()


def test_a_run_ends_if_all_workers_are_dead() -> None:
    journal = play_episodes(scene(events=[{"at": "1s", "kill": "node-1"}]), "sim", own_client)
    assert list(endings(journal).values()) == ["killed"] * 4
    assert journal.events[-1]["event"] == "ended"


def test_tasks_and_timers_of_a_dead_process_stand_still_until_it_is_woken() -> None:
    async def main() -> list[str]:
        seen: list[str] = []
        life = Life()

        async def child() -> None:
            await asyncio.sleep(2)
            seen.append("child")

        async def process() -> None:
            helper = asyncio.create_task(child())
            try:
                await asyncio.sleep(1)
                seen.append("first")
                await helper
            finally:
                seen.append("finally")

        start_in(life, process())
        await asyncio.sleep(1.5)
        life.end()
        await asyncio.sleep(10)
        seen.append("later")
        life.wake(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return seen

    assert run_virtually(main(), loop=MortalLoop)[:2] == ["first", "later"]


CLIENT = """
import asyncio, os, pathlib
from sfusion.harness.lab.episodes.daytona_wire import DaytonaWire

async def run(task):
    print("this is no answer")
    folder = pathlib.Path(os.environ["SEEN"])
    async with DaytonaWire(task) as wire:
        asked = {"labels": task.labels, "autoStopInterval": 0}
        sandbox = (await wire.control("POST", f"{task.url}/api/sandbox", json=asked))["id"]
        await wire.until_ready(sandbox)
        try:
            answers = [await wire.execute(sandbox, step.command) for step in task.steps]
        finally:
            (folder / task.id).write_text(str(os.getpid()))
            await wire.delete(sandbox)
    return {"score": 1.0, "outcome": "ok", "answers": answers}

def hold(task):
    import threading
    threading.Event().wait()

def leave(task):
    os._exit(3)
"""


@pytest.fixture
def client_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    seen = tmp_path / "seen"
    seen.mkdir()
    monkeypatch.setenv("SEEN", str(seen))
    file = tmp_path / "some_client.py"
    file.write_text(CLIENT)
    return file


def in_processes(scenario: Scenario, source: str) -> Journal:
    client = shape_of(source).make()
    assert isinstance(client, EpisodeClient)
    return play_episodes(scenario, "wall", client.target, source=client.source)


def test_in_world_wall_a_process_is_killed(client_file: Path) -> None:
    journal = in_processes(scene(), f"{client_file}:run")
    ends = endings(journal)
    killed = sorted(name for name, end in ends.items() if end == "killed")
    assert killed == ["e0002", "e0004"]
    assert sorted(ends.values()) == ["killed"] * 2 + ["returned"] * 4
    assert set(broken(journal)) == {"every_sandbox_deleted"}
    seen = {file.name: file.read_text() for file in (client_file.parent / "seen").iterdir()}
    assert sorted(seen) == ["e0001", "e0003", "e0005", "e0006"], "a killed one runs no finally"
    assert str(os.getpid()) not in seen.values()
    answered = [event for event in journal.events if event["event"] == "episode_ended"]
    assert all(event["answers"] for event in answered if event["end"] == "returned")


def test_threads_are_killed_with_their_process(client_file: Path) -> None:
    scenario = scene(episodes={"count": 2, "concurrency": 2, "settle": 0})
    scenario = scenario.changed(events=[{"at": "100ms", "kill": "node-1"}])
    journal = in_processes(scenario, f"{client_file}:hold")
    assert endings(journal) == {"e0001": "killed", "e0002": "killed"}


def test_a_process_that_ends_by_itself_is_the_clients_fault(client_file: Path) -> None:
    scenario = scene(episodes={"count": 1, "settle": 0}, events=[{"at": "1m", "kill": "worker-2"}])
    journal = in_processes(scenario, f"{client_file}:leave")
    (ended,) = [event for event in journal.events if event["event"] == "episode_ended"]
    assert ended["end"] == "raised"
    assert "ended by itself" in ended["text"]


def test_a_client_that_no_process_can_import_is_refused() -> None:
    with pytest.raises(WorldError, match="name it as --tools"):
        raise_stuck(play_episodes(scene(), "wall", clients.plain))
    with pytest.raises(WorldError, match="a worker could not start"):
        raise_stuck(
            play_episodes(scene(), "wall", clients.plain, source="no_such_module_of_ours:run")
        )


def raise_stuck(journal: Journal) -> None:
    stuck = [event for event in journal.events if event["event"] == "stuck"]
    raise WorldError(json.dumps(stuck))


def test_a_client_that_closes_its_socket_while_a_command_runs_has_left_nothing() -> None:
    """OpenEnv deletes what belongs to a connection, but only when its step has ended."""
    import aiohttp

    async def play(task: EpisodeTask) -> Any:
        url = task.url.replace("http", "ws", 1)
        async with aiohttp.ClientSession() as session, session.ws_connect(f"{url}/ws") as socket:
            await socket.send_json({"type": "reset", "data": {"episode_id": task.id}})
            await socket.receive()
            await socket.send_json({"type": "step", "data": {"code": task.steps[0].code}})
            await socket.receive()

    part = {"count": 2, "concurrency": 2, "settle": 0, "steps": [{"exec": {"seconds": 60}}]}
    scenario = scene(
        sandbox={"face": "openenv"}, episodes=part, events=[{"at": "1s", "cancel": 1.0}]
    )
    journal = play_episodes(scenario, "sim", play)
    assert list(endings(journal).values()) == ["cancelled"] * 2
    assert [event["event"] for event in journal.events].count("sandbox_left") == 2
    assert broken(journal) == {}
