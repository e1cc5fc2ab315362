"""`judge` with clients that play whole episodes: what it finds, in which service, and how."""

from __future__ import annotations

import asyncio
import os
import subprocess
from operator import itemgetter
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sfusion.harness.core.journal import Journal
from sfusion.harness.errors import BadOption
from sfusion.harness.lab.episodes.daytona_wire import DaytonaWire
from sfusion.harness.lab.episodes.own_client import WIRES
from sfusion.harness.lab.episodes.own_client import episode as own_client
from sfusion.harness.lab.promises import RunEvents
from sfusion.harness.lab.promises.registry import check_run
from sfusion.harness.lab.runs.faces import with_face
from sfusion.harness.lab.shapes import shape_of
from sfusion.harness.lab.shapes.episode import text_of
from sfusion.harness.lab.worlds.episodes import play_episodes
from sfusion.harness.trial.episode_row import EPISODE_FAULTS, episode_cell, episode_row
from sfusion.harness.trial.episodes import episode_scenes
from sfusion.harness.trial.result import TrialResult
from sfusion.harness.trial.trial import judge, write_baseline
from tests.cases import every
from tests.harness.lab.worlds import episode_clients as clients
from tests.warm import warm

WRONG: list[tuple[str, Any, set[str]]] = [
    ("never deletes", clients.never_deletes, {"every_sandbox_deleted"}),
    ("creates again", clients.creates_again, {"create_once", "no_orphan_after_lost_create"}),
    ("scores losses", clients.scores_losses, {"infra_never_scored"}),
    ("replaces the dead", clients.replaces_the_dead, {"dead_never_replaced"}),
    ("runs twice", clients.runs_twice, {"no_duplicate_execution"}),
    ("hammers", clients.hammers, {"retry_after_honoured"}),
    ("deletes once", clients.deletes_once, {"delete_retried"}),
    ("keeps for ever", clients.keeps_for_ever, {"every_sandbox_deleted"}),
]


def judged(client: Any, scenes: str = "") -> TrialResult:
    return judge(client, world="sim", face="daytona", scenes=scenes)


def broken(result: TrialResult) -> set[str]:
    return {verdict.promise for verdict in result.verdicts if verdict.state == "broken"}


def test_a_right_client_breaks_nothing_and_every_promise_is_shown() -> None:
    result = judged(own_client)
    assert result.ok, result.table()
    unknown = {verdict.promise for verdict in result.verdicts if verdict.state != "held"}
    assert not unknown
    assert len(result.runs) == len(episode_scenes())
    assert not result.left_out


class ProbingWire(DaytonaWire):
    """Asks a new sandbox whether it answers, as NeMo Gym's provider does, and then once more."""

    async def until_ready(self, sandbox: str) -> None:
        await super().until_ready(sandbox)
        for _ in range(2):
            assert await self.execute(sandbox, "printf sandbox-ready") == "sandbox-ready"


def test_a_right_client_may_ask_whether_a_sandbox_answers(monkeypatch: Any) -> None:
    monkeypatch.setitem(WIRES, "daytona", ProbingWire)
    result = judged(own_client)
    assert all(verdict.held for verdict in result.verdicts), result.table()
    assert not result.left_out


@every(WRONG, itemgetter(0))
def test_a_mistake_is_found_and_its_meaning_said(case: tuple[str, Any, set[str]]) -> None:
    _name, client, expected = case
    result = judged(client)
    assert expected <= broken(result), result.table()
    assert not result.ok
    explained = {how.promise for meaning in result.meanings for how in meaning.findings}
    assert explained == broken(result)
    assert not any("is broken" in meaning.title for meaning in result.meanings), "no lesson"


def test_a_sandbox_that_is_used_again_shows_what_is_left_in_it() -> None:
    kept: list[str] = []

    async def pooled(task: Any) -> Any:
        async with DaytonaWire(task) as wire:
            if not kept:
                kept.append(await wire.create())
                await wire.until_ready(kept[0])
            answers = await clients.take_all(wire, kept[0], task)
            return {**clients.OK, "answers": answers}

    assert "no_state_leaked" in broken(judged(pooled, "leftovers"))


@every([scene.scenario for scene in episode_scenes()], str)
def test_each_scene_is_broken_by_a_wrong_client(name: str) -> None:
    scene = next(scene for scene in episode_scenes() if scene.scenario == name)
    for _, client, _ in WRONG:
        verdicts, implied = check_run(RunEvents(play_episodes(scene, "sim", client)), [])
        if any(verdict.state == "broken" for verdict in (*verdicts, *implied)):
            return
    pytest.fail("no wrong client breaks it")


def test_a_word_excuses_a_score_only_if_it_says_that_the_sample_is_left_out() -> None:
    async def zero(task: Any, outcome: str) -> Any:
        found = await clients.plain(task)
        return found if found["score"] is not None else {"score": 0.0, "outcome": outcome}

    words = {"wrong answer": False, "error": False, "crashed": False, "ABORTED": True}
    for outcome, is_excused in words.items():

        async def episode(task: Any, outcome: str = outcome) -> Any:
            return await zero(task, outcome)

        found = "infra_never_scored" in broken(judged(episode, "vanishes"))
        assert found != is_excused, outcome


# -- classes --


class Holder:
    """A sandbox of Daytona as a class."""

    async def create(self, labels: dict[str, str]) -> dict[str, Any]:
        self._api = f"{os.environ['DAYTONA_API_URL']}/sandbox"
        made = await self._send("POST", self._api, json={"labels": labels})
        state = made["state"]
        while state != "started":
            await asyncio.sleep(0.1)
            state = (await self._send("GET", f"{self._api}/{made['id']}"))["state"]
        return made

    async def exec(self, sandbox: dict[str, Any], command: str) -> tuple[int, str, str]:
        url = f"{sandbox['toolboxProxyUrl']}/{sandbox['id']}/process/execute"
        answer = await self._send("POST", url, json={"command": command})
        return answer["exitCode"], answer["result"], ""

    async def delete(self, sandbox: dict[str, Any]) -> None:
        await self._send("DELETE", f"{self._api}/{sandbox['id']}")

    async def _send(self, method: str, url: str, **options: Any) -> Any:
        async with (
            aiohttp.ClientSession(raise_for_status=True) as session,
            session.request(method, url, **options) as answer,
        ):
            return await answer.json()


def test_a_class_with_create_exec_and_delete_plays_episodes() -> None:
    result = judged(Holder, "plain or lost")
    assert broken(result) == {"no_orphan_after_lost_create", "delete_retried"}
    answered = next(v for v in result.verdicts if v.promise == "answers_are_own")
    assert answered.held
    assert "a class that holds a sandbox, asynchronous" in result.about


def test_a_class_that_needs_more_is_refused_with_what_to_do() -> None:
    class Needs:
        def __init__(self, image: str) -> None: ...
        def create(self) -> None: ...
        def exec(self, command: str) -> str:
            return command

        def delete(self) -> None: ...

    with pytest.raises(BadOption, match="needs image to be made; give a function"):
        shape_of(Needs)


@pytest.mark.parametrize(
    ("said", "expected"),
    [("text", "text"), ((0, "out", "err"), "out"), ({"stdout": "out"}, "out"), (None, "")],
)
def test_what_a_command_printed_is_found_in_its_result(said: Any, expected: str) -> None:
    assert text_of(said) == expected


# -- services --


def test_a_client_whose_service_is_not_clear_needs_face(tmp_path: Path) -> None:
    file = tmp_path / "plain_client.py"
    file.write_text("async def run(task):\n    return None\n")
    with pytest.raises(BadOption, match="say which service it speaks to with --face"):
        judge(f"{file}:run")
    with pytest.raises(BadOption, match="does not play whole episodes"):
        judge("sfusion_tools.sandbox_fusion_tools:SandboxFusionTool", face="e2b")


def test_the_service_is_the_one_that_the_file_names(tmp_path: Path) -> None:
    file = tmp_path / "some_client.py"
    file.write_text("import os\nasync def run(task):\n    os.environ['E2B_API_URL']\n")
    assert shape_of(f"{file}:run").face == "e2b"


def test_steps_that_a_service_does_not_have_are_left_out() -> None:
    for scene in episode_scenes():
        changed = with_face(scene, "openenv")
        assert changed.sandbox.face == "openenv"
        assert changed.episodes is not None
        assert all(step.exec is not None for step in changed.episodes.steps)
        assert with_face(scene, "daytona") is scene


def test_run_leaves_out_what_is_for_another_service_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "e2b_client.py"
    file.write_text(
        "import os\n\nasync def run(task):\n"
        "    assert task.face == 'e2b' and os.environ['E2B_API_URL'] == task.url\n"
        "    return {'score': None}\n"
    )
    words = [warm("sfusion"), "run", "fake-zeros", "--tools", f"{file}:run"]
    refused = subprocess.run(words, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "the client speaks to e2b; with --face e2b" in refused.stderr
    more = ["--face", "e2b", "--world", "sim", "--out", tmp_path / "runs"]
    subprocess.run([*words, *more], capture_output=True, text=True, check=False)
    journal = Journal.read(next((tmp_path / "runs").rglob("journal.ndjson")))
    ends = [event["end"] for event in journal.events if event["event"] == "episode_ended"]
    assert ends == ["returned"] * 16


# -- the command --


def test_a_baseline_accepts_what_is_found(tmp_path: Path) -> None:
    file = tmp_path / "accepted.json"
    write_baseline(file, judged(clients.deletes_once, "delete"))
    again = judge(clients.deletes_once, world="sim", face="daytona", scenes="delete", baseline=file)
    assert not again.counts["broken"]
    assert again.counts["accepted"]
    assert again.ok


def test_a_row_says_what_each_fault_takes_and_leaves(monkeypatch: Any) -> None:
    row = episode_row(shape_of(clients.plain), "daytona")
    assert list(row) == list(EPISODE_FAULTS)
    assert row["create 504, made"] == "no score, **1 left**"
    assert row["dies"] == "no score"
    assert row["delete 502"].endswith("**1 left**")
    own = shape_of(own_client)
    assert episode_cell(own, "create 504 once, made", "daytona").startswith("✓")
    assert episode_cell(own, "delete 504, done", "daytona") == "✓, 2 deletes"
    monkeypatch.setitem(WIRES, "daytona", ProbingWire)
    probing = episode_cell(own, "delete 504, done", "daytona")
    assert probing == "✓, 2 deletes", "its questions are no commands"
