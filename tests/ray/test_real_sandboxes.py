"""World ray with real sandboxes: servers in other processes, given by their address, behind the
fault proxy."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sfusion.harness.core.journal import Event, Journal
from sfusion.harness.lab.promises import Verdict, check_promises
from sfusion.harness.lab.scenarios import parse_scenarios
from sfusion.harness.lab.worlds import ray as ray_world
from sfusion.harness.lab.worlds.ray_cluster import OwnCluster
from sfusion.harness.real.targets import RealSandbox, open_targets, read_target
from tests.patience import PATIENCE
from tests.ray.actors import until
from tests.ray.processes import Watched, commands, descendants
from tests.warm import warm


@pytest.fixture(scope="module")
def addresses() -> Iterator[list[str]]:
    """Two servers in processes of their own that run code, like a real sandbox."""
    command = [warm("sfusion"), "serve", "sandbox", "--port", "0", "--executor", "python"]
    servers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        yield [_address(server) for server in servers]
    finally:
        for server in servers:
            server.terminate()
            server.communicate()


def _address(server: subprocess.Popen[str]) -> str:
    assert server.stdout is not None
    words = next(line for line in server.stdout if "http://" in line).split()
    return next(word for word in words if word.startswith("http://"))


def played(
    place: OwnCluster, body: str, promises: str, real: list[RealSandbox]
) -> tuple[Journal, dict[str, Verdict]]:
    text = f"scenario: tried\nabout: what a test tries\nworlds: [ray]\n{body}\npromises: {promises}"
    tried = parse_scenarios(text, file="tried.yaml")[0]
    journal = ray_world.run(tried, cluster=place, real=real)
    return journal, {
        verdict.promise: verdict for verdict in check_promises(journal, tried.promises)
    }


def all_held(verdicts: dict[str, Verdict]) -> None:
    assert {name: verdict.sentence for name, verdict in verdicts.items() if not verdict.held} == {}


def events(journal: Journal, name: str) -> list[Event]:
    return [event for event in journal.events if event["event"] == name]


def test_faults_and_a_quota_strike_in_front_of_a_real_server(
    place: OwnCluster, addresses: list[str]
) -> None:
    body = """
tools: {rate_limit: 6, default_timeout: 20}
sandbox:
  model: {kind: quota, in_flight: 2, retry_after: 0.1}
  faults:
    - {name: early, first: 2, what: {status: 503}}
    - {name: lost-answer, call: c0009, times: 1, phase: after, what: reset}
    - {name: cut, call: c0012, times: 1, what: {truncate: 0.5}}
load:
  calls: 24
  concurrency: 8
  program:
    - {share: 3, seconds: 200ms, prints: "{call}\\n"}
    - {share: 1, prints: "before\\n", raises: "ValueError: rotten"}
"""
    promises = """
  - in_flight_within_limit
  - every_call_ends_once
  - {outcomes: {ok: some, program_error: some}}
  - text_is_truthful
  - no_permit_leaked
  - no_duplicate_execution"""
    with open_targets([read_target(addresses[0])]) as real:
        journal, verdicts = played(place, body, promises, real)
    unknown = verdicts.pop("no_duplicate_execution")
    all_held(verdicts)
    assert {event["rule"] for event in events(journal, "strike")} == {"early", "lost-answer", "cut"}
    assert any(event["status"] == 429 for event in events(journal, "answered"))
    # The answer to c0009 was lost: it was forwarded twice, and only the server knows whether it
    # also ran twice.
    assert unknown.state == "unknown"
    assert "forwarded 2 times" in unknown.sentence
    assert not events(journal, "started")
    assert addresses[0].removeprefix("http://") not in "".join(journal.lines())


def test_a_request_forwarded_once_ran_at_most_once(place: OwnCluster, addresses: list[str]) -> None:
    body = 'load: {calls: 8, concurrency: 4, program: {prints: "{call}\\n"}}'
    with open_targets([read_target(addresses[0])]) as real:
        _, verdicts = played(
            place, body, "[no_duplicate_execution, text_is_truthful, {outcomes: {ok: all}}]", real
        )
    all_held(verdicts)
    assert "8 programs forwarded" in verdicts["no_duplicate_execution"].sentence


def test_one_of_two_servers_goes_down_and_the_other_takes_over(
    place: OwnCluster, addresses: list[str]
) -> None:
    body = """
tools: {rate_limit: 4}
load: {calls: 24, concurrency: 8, program: {seconds: 200ms, prints: "{call}\\n"}}
sandbox: {instances: 2}
events: [{after: {ended: 4}, crash: sandbox-2}]
"""
    promises = (
        "[in_flight_within_limit, every_call_ends_once, {outcomes: {ok: all}}, "
        "text_is_truthful, no_permit_leaked]"
    )
    with open_targets([read_target(address) for address in addresses]) as real:
        journal, verdicts = played(place, body, promises, real)
    all_held(verdicts)
    crashed = next(event["at"] for event in events(journal, "crash"))
    asked = {event["endpoint"] for event in events(journal, "attempt_started")}
    assert asked == {"http://sandbox-1", "http://sandbox-2"}
    assert {event["sandbox"] for event in events(journal, "answered") if event["at"] > crashed} == {
        "sandbox-1"
    }


COMMAND = """\
import os
from sfusion.harness.cli import main
print(os.getpid(), flush=True)
main()
"""


def family(pid: int) -> dict[int, str]:
    """Return the command lines of a process's descendants."""
    return commands(descendants(pid))


def test_the_command_runs_against_an_address_and_reports_it_and_ctrl_c_leaves_no_process_behind(
    addresses: list[str], tmp_path: Path
) -> None:
    for name, load in (
        ("small", "{calls: 4, concurrency: 2}"),
        ("long", "{calls: 4, program: {seconds: 600s}}"),
    ):
        (tmp_path / f"{name}.yaml").write_text(
            f"scenario: {name}\nabout: a few calls\nworlds: [ray]\ntools: "
            f"{{default_timeout: 900}}\nload: {load}\n"
            "promises: [every_call_ends_once, {outcomes: {ok: all}}]\n"
        )
    options = ["small.yaml", "long.yaml", "--sandbox", addresses[0], "--out", "runs", "-v"]
    command = [warm("python"), "-c", COMMAND, "run", *options]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True) as run:
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        assert run.stdout.readline() == "[1/2] held    small\n"
        until(
            lambda: "ray::WorkerProcess" in " ".join(family(pid).values()) or run.poll() is not None
        )
        started = family(pid)
        watched = Watched(list(started))
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=PATIENCE)
    assert errors == "interrupted: 1 of 2 runs ended, and what they wrote is in runs\n"
    assert run.returncode == 130
    assert any("raylet" in name for name in started.values())
    assert watched.still_alive(60) == []
    folder = tmp_path / "runs" / "small@ray"
    assert Journal.read(folder / "journal.ndjson").header["sandboxes"] == [addresses[0]]
    assert f"--sandbox {addresses[0]}" in (folder / "report.html").read_text()
    again = [warm("sfusion"), "replay", str(folder)]
    refused = subprocess.run(again, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert refused.returncode == 2
    assert "which cannot be replayed" in refused.stderr
