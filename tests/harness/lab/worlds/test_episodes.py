"""Episodes: what a scenario lets happen, and what each promise finds in right and wrong clients."""

from __future__ import annotations

import json
import math
import os
import re
import urllib.request
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from sfusion.harness.core.journal import Journal
from sfusion.harness.errors import ScenarioError
from sfusion.harness.lab.episodes import EpisodeTask
from sfusion.harness.lab.episodes.own_client import episode as own_client
from sfusion.harness.lab.promises import PROMISES, RunEvents
from sfusion.harness.lab.promises.registry import check_run
from sfusion.harness.lab.scenarios import (
    Scenario,
    bundled_folder,
    parse_scenarios,
    read_scenarios,
)
from sfusion.harness.lab.scenarios.reading import in_folder
from sfusion.harness.lab.worlds.episode_endings import read_result
from sfusion.harness.lab.worlds.episodes import play_episodes
from tests import ROOT
from tests.cases import every
from tests.harness.lab.worlds import episode_clients as clients

TEXT = """
scenario: some-episodes
about: Episodes of the tests.
sandbox:
  face: daytona
  model: {kind: lifecycle, boot: 500ms}
  faults:
    - {name: lost-create, on: create, every: 3, phase: after, what: {status: 504}}
episodes:
  count: 6
  concurrency: 3
  steps: [{write: marker}, {exec: {seconds: 200ms}}, {read: marker}]
"""


def scene(
    faults: list[dict[str, Any]] | None = None,
    model: dict[str, Any] | None = None,
    **changes: Any,
) -> Scenario:
    (scenario,) = parse_scenarios(TEXT, file="<test>")
    sandbox = {
        "face": "daytona",
        "model": {"kind": "lifecycle", "boot": "500ms", **(model or {})},
        "faults": faults or [],
    }
    return scenario.changed(sandbox=sandbox, **changes)


def broken(journal: Journal) -> set[str]:
    verdicts, _ = check_run(RunEvents(journal), [])
    return {verdict.promise for verdict in verdicts if verdict.state == "broken"}


def held(journal: Journal) -> set[str]:
    verdicts, implied = check_run(RunEvents(journal), [])
    return {verdict.promise for verdict in [*verdicts, *implied] if verdict.held}


def endings(journal: Journal) -> list[Any]:
    return [event for event in journal.events if event["event"] == "episode_ended"]


LOST_CREATE = {
    "name": "lost",
    "on": "create",
    "every": 3,
    "phase": "after",
    "what": {"status": 504},
}
DEATH = {"name": "dies", "on": "exec", "after": 4, "times": 1, "what": {"death": "gone"}}
LOST_ANSWER = {"name": "late", "on": "exec", "first": 1, "phase": "after", "what": "reset"}
LOST_DELETE = {"name": "lost-delete", "on": "delete", "first": 1, "what": {"status": 502}}
TWO_COMMANDS = {"count": 4, "concurrency": 2, "steps": [{"exec": {}}, {"exec": {}}, {"exec": {}}]}


@dataclass(frozen=True)
class Mistake:
    """A wrong client, where it shows, and what must find it."""

    promise: str
    client: clients.Client
    scenario: Scenario
    also: frozenset[str] = frozenset()
    """What else the same mistake breaks."""


MISTAKES = [
    Mistake("every_sandbox_deleted", clients.never_deletes, scene()),
    Mistake("no_orphan_after_lost_create", clients.plain, scene([LOST_CREATE])),
    Mistake(
        "create_once",
        clients.creates_again,
        scene([LOST_CREATE]),
        frozenset({"no_orphan_after_lost_create"}),
    ),
    Mistake(
        "dead_never_replaced",
        clients.replaces_the_dead,
        scene([DEATH], episodes=TWO_COMMANDS),
        frozenset({"create_once"}),
    ),
    Mistake(
        "retry_after_honoured",
        clients.hammers,
        scene(model={"live": 2, "retry_after": 2}),
    ),
    Mistake("creates_within_limit", clients.plain, scene(model={"live": 2})),
    Mistake("delete_retried", clients.deletes_once, scene([LOST_DELETE])),
    Mistake("infra_never_scored", clients.scores_losses, scene([DEATH], episodes=TWO_COMMANDS)),
    Mistake("answers_are_own", clients.shifted(), scene(episodes=TWO_COMMANDS)),
    Mistake("ttl_covers_episode", clients.dawdles, scene(model={"ttl": "2s"}), frozenset()),
    Mistake(
        "no_state_leaked",
        clients.pooled(),
        scene(
            episodes={
                "count": 3,
                "concurrency": 1,
                "steps": [{"write": "marker"}, {"exec": {}}, {"read": "marker"}],
            }
        ),
        frozenset({"every_sandbox_deleted"}),
    ),
    Mistake(
        "no_duplicate_execution", clients.runs_twice, scene([LOST_ANSWER], episodes=TWO_COMMANDS)
    ),
]


@every(MISTAKES, attrgetter("promise"))
def test_each_promise_finds_its_mistake(case: Mistake) -> None:
    asked = scene(promises=[case.promise]).promises
    journal = play_episodes(case.scenario, "sim", case.client)
    verdicts, _ = check_run(RunEvents(journal), asked)
    assert verdicts[0].promise == case.promise
    assert verdicts[0].state == "broken", verdicts[0].sentence
    assert verdicts[0].evidence
    others = {verdict.promise for verdict in verdicts[1:]}
    assert others <= case.also, [verdict.sentence for verdict in verdicts]


def test_every_promise_about_episodes_has_a_mistake() -> None:
    judged = {name for name, cls in PROMISES.items() if cls.model_construct().judges_episodes}
    assert judged == {mistake.promise for mistake in MISTAKES}
    page = (ROOT / "docs/proof.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \|", page.partition("## Clients of episodes")[2], re.MULTILINE)
    assert sorted(rows) == sorted(judged)


@every(MISTAKES, attrgetter("promise"))
def test_our_own_client_breaks_no_promise_there(case: Mistake) -> None:
    journal = play_episodes(case.scenario, "sim", own_client)
    assert broken(journal) == set()
    assert "every_sandbox_deleted" in held(journal)


def test_a_run_is_a_function_of_its_seed() -> None:
    first = play_episodes(scene([LOST_CREATE]), "sim", own_client)
    again = play_episodes(scene([LOST_CREATE]), "sim", own_client)
    assert first.digest() == again.digest()
    assert first.digest() != play_episodes(scene(seed=1), "sim", own_client).digest()


def test_cancelled_episodes_delete_their_sandboxes() -> None:
    scenario = scene(
        model={"boot": "2s"},
        events=[{"at": "300ms", "cancel": 1.0}],
        episodes={"count": 4, "concurrency": 4},
    )
    journal = play_episodes(scenario, "sim", own_client)
    assert [event["end"] for event in endings(journal)] == ["cancelled"] * 4
    assert broken(journal) == set()
    assert broken(play_episodes(scenario, "sim", clients.plain)) == {"every_sandbox_deleted"}


def test_an_episode_that_takes_too_long_is_cancelled() -> None:
    part = {"count": 2, "concurrency": 2, "deadline": "1s", "steps": [{"exec": {"seconds": 30}}]}
    journal = play_episodes(scene(episodes=part), "sim", own_client)
    assert [(event["end"], event["by"]) for event in endings(journal)] == [
        ("cancelled", "deadline")
    ] * 2
    assert broken(journal) == set()


def test_a_synchronous_client_plays_in_threads_with_the_variables_of_the_sdk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DAYTONA_API_URL", "https://example.invalid/api")

    def ask(method: str, url: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url, data=data, method=method, headers=headers)
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read())

    def play(task: EpisodeTask) -> Any:
        api = f"{os.environ['DAYTONA_API_URL']}/sandbox"
        made = ask("POST", api, {"labels": task.labels})
        toolbox = f"{made['toolboxProxyUrl']}/{made['id']}"
        command = next(step.command for step in task.steps if step.kind == "exec")
        printed = ask("POST", f"{toolbox}/process/execute", {"command": command})["result"]
        if task.id == "e0003":
            raise RuntimeError("the third one fails")
        ask("DELETE", f"{api}/{made['id']}")
        return {"score": 1.0, "answers": [printed]}

    part = {"count": 3, "concurrency": 2, "steps": [{"exec": {}}], "settle": 0}
    scenario = scene(model={"boot": 0}, episodes=part)
    journal = play_episodes(scenario, "wall", play)
    assert sorted(event["end"] for event in endings(journal)) == ["raised", "returned", "returned"]
    assert broken(journal) == {"every_sandbox_deleted"}
    assert "answers_are_own" in held(journal)
    assert os.environ["DAYTONA_API_URL"] == "https://example.invalid/api"


@pytest.mark.parametrize(
    "score", [math.nan, math.inf, -math.inf, pytest.param(10**400, id="huge"), True, "1", None]
)
def test_what_is_not_a_finite_number_is_no_score(score: Any) -> None:
    assert read_result(score) == read_result({"reward": score}) == {"score": None}
    assert read_result({"score": 1}) == {"score": 1.0}


REFUSED = {
    "load: {calls: 3}": "found load and episodes",
    "tools: {rate_limit: 3}": "played by a client of their own",
    "promises: [no_permit_leaked]": "is not about episodes",
    "events: [{at: 1s, kill: limiter}]": "have workers and nodes, but no limiter",
    "events: [{at: 1s, resize: 3}]": "episodes know only",
    "worlds: [sim, ray]": "leave out world ray",
}


@every(list(REFUSED), str)
def test_what_episodes_do_not_have_is_refused(case: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        parse_scenarios(f"{TEXT}{case}\n", file="<test>")
    assert REFUSED[case] in str(refused.value)


def test_a_face_is_for_episodes_and_has_a_model_of_its_own() -> None:
    head = "scenario: wrong\nabout: Wrong.\n"
    for text, sentence in {
        "sandbox: {face: daytona}\nload: {calls: 1}": "a `face` is for `episodes`",
        "episodes: {count: 1}": "`episodes` need `sandbox",
        "sandbox: {model: {kind: lifecycle}}\nload: {calls: 1}": "the model of a `face`",
        "sandbox: {face: daytona, faults: [{on: boot, what: {status: 500}}]}\nepisodes: {}": "boot",
    }.items():
        with pytest.raises(ScenarioError) as refused:
            parse_scenarios(f"{head}{text}\n", file="<test>")
        assert sentence in str(refused.value)


WRONG: list[clients.Client] = [
    clients.never_deletes,
    clients.deletes_once,
    clients.plain,
    clients.creates_again,
    clients.scores_losses,
    clients.hammers,
    clients.replaces_the_dead,
    clients.keeps_for_ever,
    clients.keeps_the_socket,
]
"""Clients of which one breaks each bundled scenario, the most usual mistakes first."""
OF_NO_THREAD = {"failing-polls"}
"""What Daytona's SDK was seen to do, and nobody has reported."""
BUNDLED = in_folder(bundled_folder() / "lifecycle")


@every(BUNDLED, attrgetter("stem"))
def test_a_bundled_scenario_is_held_by_our_client_and_broken_by_a_wrong_one(path: Path) -> None:
    (scenario,) = read_scenarios(path)
    assert scenario.scenario == path.stem
    assert bool(scenario.incident) == (path.stem not in OF_NO_THREAD)
    verdicts, _ = check_run(
        RunEvents(play_episodes(scenario, "sim", own_client)), scenario.promises
    )
    assert [verdict.sentence for verdict in verdicts if not verdict.held] == []
    for client in WRONG:
        journal = play_episodes(scenario, "sim", client)
        verdicts, _ = check_run(RunEvents(journal), scenario.promises)
        if any(verdict.state == "broken" for verdict in verdicts):
            return
    pytest.fail("no wrong client breaks it")


def test_there_are_enough_bundled_episodes() -> None:
    assert len(BUNDLED) >= 15
