"""World wall with a server that is not ours: real programs, faults by a proxy, no Ray."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.lab.commands.run import RunOptions
from tests.warm import warm

SCENARIO = """
scenario: short
about: A few calls, the first of which meet a fault; later the way to the sandbox is cut.
worlds: [sim]
tools: {rate_limit: 4}
sandbox: {faults: [{name: busy, first: 2, what: {status: 503}}]}
events: [{at: 200ms, crash: sandbox, seconds: 0.2}]
load: {calls: 16, concurrency: 4, program: {seconds: 100ms, prints: "42\\n"}}
promises: [every_call_ends_once, {outcomes: {ok: all}}]
"""


def test_a_scenario_of_world_sim_runs_against_a_server(tmp_path: Path) -> None:
    file = tmp_path / "short.yaml"
    file.write_text(SCENARIO)
    with FakeSandbox(executor="python") as server:
        arguments = ["run", file, "--world", "wall", "--sandbox", server.url]
        command = [warm("sfusion"), *map(str, arguments), "--out", str(tmp_path / "runs")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        arrived = server.ledger.snapshot()["arrived"]
    assert done.returncode == 0, done.stdout + done.stderr
    assert arrived >= 16, "its programs ran there"
    (journal,) = (tmp_path / "runs").rglob("journal.ndjson")
    lines = journal.read_text(encoding="utf-8").splitlines()
    header, *events = map(json.loads, lines)
    assert header["world"] == "wall"
    kinds = [event["event"] for event in events]
    assert kinds.count("strike") == 2
    assert "crash" in kinds, sorted(set(kinds))


@pytest.mark.parametrize(("has_ray", "world"), [(True, "ray"), (False, "wall")])
def test_the_world_of_a_real_sandbox_needs_no_ray(
    has_ray: bool, world: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = object() if has_ray else None
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: found)
    assert RunOptions().world_for(real=True) == world
