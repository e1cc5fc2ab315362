"""``sfusion run`` with containers: faults through the proxy, and a container killed under load."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from sfusion.harness.core.journal import Event, Journal
from sfusion.harness.real.targets.docker_engine import ContainerEngine
from sfusion.harness.real.targets.owner import LABEL

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker"), pytest.mark.timeout(400)]

FAULTY = """
scenario: faulty
about: A gateway and a few faults in front of a container.
worlds: [ray]
tools: {rate_limit: 6, default_timeout: 20}
sandbox:
  model: {kind: quota, in_flight: 4, retry_after: 0.1}
  faults:
    - {name: early, first: 2, what: {status: 503}}
    - {name: lost-answer, call: c0005, times: 1, phase: after, what: reset}
load:
  calls: 16
  concurrency: 8
  program:
    - {share: 3, seconds: 20ms, prints: "{call}\\n"}
    - {share: 1, prints: "before\\n", raises: "ValueError: rotten"}
promises:
  - in_flight_within_limit
  - every_call_ends_once
  - {outcomes: {ok: some, program_error: some}}
  - text_is_truthful
  - no_permit_leaked
"""
KILLED = """
scenario: killed
about: Two containers share the load; one is killed in the middle and comes back.
worlds: [ray]
tools: {rate_limit: 4, default_timeout: 20}
sandbox: {instances: 2}
load: {calls: 40, concurrency: 8, program: {seconds: 200ms, prints: "{call}\\n"}}
events: [{at: 400ms, crash: sandbox-2, seconds: 200ms}]
promises:
  - in_flight_within_limit
  - every_call_ends_once
  - {outcomes: {ok: all}}
  - text_is_truthful
  - no_permit_leaked
"""


def events(journal: Journal, name: str) -> list[Event]:
    return [event for event in journal.events if event["event"] == name]


def test_promises_hold_through_the_proxy_even_if_a_container_is_killed(
    engine: ContainerEngine, sandbox_image: str, tmp_path: Path
) -> None:
    (tmp_path / "faulty.yaml").write_text(FAULTY)
    (tmp_path / "killed.yaml").write_text(KILLED)
    command = [sys.executable, "-m", "sfusion", "run", "killed.yaml", "faulty.yaml"]
    command += ["--sandbox", f"docker:{sandbox_image}", "--out", "runs"]
    ran = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=380, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 runs: every promise held." in ran.stdout
    assert "docker-2: ready at http://127.0.0.1:" in ran.stderr

    killed = Journal.read(tmp_path / "runs" / "killed@ray" / "journal.ndjson")
    asked = {event["endpoint"] for event in events(killed, "attempt_started")}
    assert asked == {"http://sandbox-1", "http://sandbox-2"}
    assert [event["sandbox"] for event in events(killed, "container_killed")] == ["docker-2"]

    faulty = Journal.read(tmp_path / "runs" / "faulty@ray" / "journal.ndjson")
    assert {event["rule"] for event in events(faulty, "strike")} == {"early", "lost-answer"}
    assert any(event["status"] == 429 for event in events(faulty, "answered"))
    assert {event.get("sandbox") for event in events(faulty, "arrived")} == {
        None
    }  # it has a single sandbox

    (name, *_) = re.findall(r"container (sfusion-\d+-)", ran.stderr)
    left = engine.client.api.containers(all=True, filters={"label": LABEL, "name": name})
    assert left == []
