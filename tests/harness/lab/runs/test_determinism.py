"""A run is a function of its seed: not of the process, its hash seed, the number of jobs, or what
ran before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from sfusion.harness.core.journal import Journal, first_difference
from sfusion.harness.lab.promises import check_promises
from sfusion.harness.lab.runs import RunResult, read_tasks, run_all
from sfusion.harness.lab.runs.runner import finish_all
from sfusion.harness.lab.scenarios import Scenario, read_scenarios, scenario_files
from sfusion.harness.lab.spreading import open_workers
from sfusion.harness.lab.worlds import sim
from sfusion_tools.sandbox.public_transport import PublicTransport
from sfusion_tools.sandbox.transport_choice import _fast_transport, chosen_transport
from tests.harness.lab.promises.scenes import scene

STORMY = """\
scenario: stormy
about: Everything at once.
seed: 4
cluster: {nodes: 2, workers_per_node: 2, link: {delay: {lognormal: [5ms, 1.0]}, loss: 0.02}}
tools: {rate_limit: 6, permit_lease: 4, default_timeout: 3, transport_margin: 1}
sandbox:
  model: {kind: quota, in_flight: 5}
  faults:
    - {name: reset, probability: 0.05, what: reset}
    - {name: late, probability: 0.05, phase: after, what: {status: 504}}
    - {name: slow, probability: 0.2, what: {delay: {exponential: 500ms}}}
    - {name: cut, probability: 0.03, what: {truncate: 0.4}}
    - {name: dies, after: 40, times: 1, phase: during, what: {crash: 1s}}
load:
  calls: 80
  concurrency: 40
  program: {seconds: {lognormal: [0.2, 0.7]}, prints: "{call}\\n"}
  cancel: {share: 0.2, after: {uniform: [0s, 4s]}}
events:
  - {at: 1s, kill: n1-w2}
  - {at: 2s, kill: limiter, seconds: 50ms}
  - {at: 3s, pause: n2-w1, seconds: 6s}
  - {at: 4s, cancel: 0.5}
promises: [every_call_ends_once, in_flight_within_limit, no_permit_leaked]
"""


@pytest.fixture(scope="module")
def stormy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stormy") / "stormy.yaml"
    path.write_text(STORMY)
    return path


@pytest.fixture(scope="module")
def journal(stormy: Path) -> Journal:
    return sim.run(read_scenarios(stormy)[0])


def test_runs_in_one_process_are_byte_identical(stormy: Path, journal: Journal) -> None:
    (cell,) = read_scenarios(stormy)
    for _ in range(3):
        sim.run(scene())  # what ran before does not matter
        again = sim.run(cell)
        assert first_difference(journal, again) is None
        assert again.digest() == journal.digest()


def test_a_version_of_aiohttp_that_nobody_has_tested_writes_the_same_journal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tool takes the other transport with it, where some events of one instant come in another
    order."""
    (file,) = (path for path in scenario_files([]) if path.stem == "limiter-death")
    (cell,) = read_scenarios(file)
    journal = sim.run(cell)
    monkeypatch.setattr(aiohttp, "__version__", "3.99.0")
    _fast_transport.cache_clear()
    assert chosen_transport() is PublicTransport
    assert first_difference(journal, sim.run(cell)) is None
    _fast_transport.cache_clear()


def test_determinism_scenario_covers_every_fault_and_event(stormy: Path, journal: Journal) -> None:
    kinds = {event["event"] for event in journal.events}
    assert {
        "worker_died",
        "limiter_died",
        "worker_paused",
        "strike",
        "cancelled",
        "lost",
        "crash",
        "learned",
    } <= kinds
    found = check_promises(journal, read_scenarios(stormy)[0].promises)
    assert [verdict for verdict in found if not verdict.held] == []


def test_other_processes_write_the_same_journal(
    stormy: Path, journal: Journal, tmp_path: Path
) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "4711"}
    other = tmp_path / "calm.yaml"
    other.write_text(STORMY.replace("stormy", "calm").replace("seed: 4", "seed: 6"))
    command = [
        sys.executable,
        "-m",
        "sfusion",
        "run",
        str(other),
        str(stormy),
        "--jobs",
        "2",
        "--out",
        str(tmp_path),
    ]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    verdict = json.loads((tmp_path / "stormy" / "verdict.json").read_text())
    assert verdict["journal_digest"] == journal.digest()
    assert Journal.read(tmp_path / "stormy" / "journal.ndjson").digest() == journal.digest()


def test_another_seed_writes_another_journal(stormy: Path, journal: Journal) -> None:
    (cell,) = read_scenarios(stormy)
    assert sim.run(cell.changed(seed=5)).digest() != journal.digest()


def test_one_calls_program_does_not_change_when_workers_are_added() -> None:
    def intents(scenario: Scenario) -> dict[str, object]:
        events = sim.run(scenario).events
        return {event["call"]: event["intent"] for event in events if event["event"] == "called"}

    load = {
        "calls": 20,
        "concurrency": 10,
        "program": [{"prints": "a"}, {"prints": "b"}, {"prints": "", "exit": 1}],
    }
    few = intents(scene(load=load))
    many = intents(scene(load=load, cluster={"nodes": 4, "workers_per_node": 2}))
    assert few == many
    assert len({str(intent) for intent in few.values()}) == 3


def test_a_journal_contains_no_address_or_port(journal: Journal) -> None:
    text = "".join(journal.lines())
    assert "127.0.0.1" not in text
    assert "0x" not in text


def test_bundled_scenarios_run_the_same_in_two_processes() -> None:
    names = ["limiter-death", "crash-and-restart", "over-sampling"]
    tasks = read_tasks(scenario_files(names), "sim")
    for result in run_all(tasks, jobs=2, twice=True):
        assert result.difference == ""


def where_and_what(result: RunResult) -> tuple[int, str]:
    return os.getpid(), result.task.name


def test_a_result_is_finished_where_it_was_played_and_comes_in_its_turn() -> None:
    tasks = read_tasks(scenario_files(["limiter-death", "crash-and-restart"]), "sim")
    with open_workers(2) as workers:
        found = list(finish_all(tasks, where_and_what, workers=workers))
    assert [name for _, name in found] == [task.name for task in tasks]
    assert os.getpid() not in {process for process, _ in found}
