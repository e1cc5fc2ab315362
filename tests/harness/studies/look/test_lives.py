"""`look` reads what a log says about sandboxes that live and die."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sfusion.harness.core.logs.own_lines import BadLine
from sfusion.harness.lab.episodes.own_client import episode as own_client
from sfusion.harness.lab.scenarios import parse_scenarios
from sfusion.harness.lab.worlds.episodes import play_episodes
from sfusion.harness.studies.look.lives import LivesDigest
from tests.harness.lab.worlds import episode_clients as clients
from tests.warm import warm

TEXT = """
scenario: some-episodes
about: Some creates are lost, and a sandbox dies.
sandbox:
  face: daytona
  model: {kind: lifecycle, boot: 500ms, ttl: 90s}
  faults:
    - {name: lost-create, on: create, every: 4, phase: after, what: {status: 504}}
    - {name: dies, on: exec, after: 3, times: 1, what: {death: gone}}
episodes: {count: 8, concurrency: 4, steps: [{exec: {}}, {exec: {}}]}
"""


def write_journal(file: Path, client: Any) -> Path:
    (scenario,) = parse_scenarios(TEXT, file="<test>")
    play_episodes(scenario, "sim", client).write(file)
    return file


def event(name: str, at: Any, instance: str = "a", **more: Any) -> dict[str, Any]:
    return {"at": at, "source": "server", "event": name, "instance": instance, **more}


def digest_of(*events: dict[str, Any], file: str = "log") -> LivesDigest:
    digest = LivesDigest()
    for one in events:
        digest.add(Path(file), one)
    return digest


def test_creates_deaths_and_what_is_left_are_counted_over_time() -> None:
    found = digest_of(
        event("sandbox_created", 1000.0, "a"),
        event("sandbox_created", 1000.5, "b"),
        event("sandbox_refused", 1001.0, "", why="rate"),
        event("sandbox_died", 1008.0, "b", why="ttl"),
        event("sandbox_deleted", 1008.5, "b"),
        event("sandbox_created", 1009.0, "c"),
        event("sandbox_deleting", 1009.5, "c"),
    ).found(2)
    assert found is not None
    assert (found.created, found.deleted, found.live, found.left) == (3, 1, 2, 1)
    assert (found.refused, found.died, found.most_live) == ({"rate": 1}, {"ttl": 1}, 2)
    early, late = found.over_time
    assert (early.start, early.created, early.refused, early.live, early.left) == (0, 2, 1, 2, 1)
    assert (late.created, late.died, late.deleted, late.live, late.left) == (1, 1, 1, 2, 0)


def test_a_sandbox_is_told_from_one_with_the_same_id_in_another_file() -> None:
    digest = digest_of(event("sandbox_created", 0.0), file="one")
    digest.add(Path("two"), event("sandbox_created", 0.0))
    digest.add(Path("two"), event("sandbox_deleted", 1.0))
    found = digest.found(12)
    assert found is not None
    assert (found.created, found.left) == (2, 1)


def test_a_log_of_days_has_as_many_rows_as_one_of_seconds() -> None:
    digest = LivesDigest()
    for hour in range(200):
        digest.add(Path("log"), event("sandbox_created", hour * 3600.0, f"s{hour}"))
    found = digest.found(12)
    assert found is not None
    assert len(found.over_time) <= 12
    assert sum(row.created for row in found.over_time) == 200
    assert found.over_time[-1].live == found.left == 200


def test_a_log_without_sandboxes_says_nothing_of_them() -> None:
    assert LivesDigest().found(12) is None


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(BadLine, match="at must be a number"):
        digest_of(event("sandbox_created", "soon"))


def look(*arguments: str) -> str:
    command = [str(warm("sfusion")), "look", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_the_command_tells_what_was_left_behind(tmp_path: Path) -> None:
    wrong = write_journal(tmp_path / "wrong.ndjson", clients.plain)
    page, data = tmp_path / "look.html", tmp_path / "look.json"
    said = look(str(wrong), "--html", str(page), "--json", str(data))
    assert "2 left behind: they live at the end, and no delete came for them" in said
    assert "outcome must be one of" not in said
    lives = json.loads(data.read_text())["lives"]
    assert lives["left"] == sum(row["left"] for row in lives["over_time"]) == 2
    assert "Sandboxes that live and die" in page.read_text()
    right = write_journal(tmp_path / "right.ndjson", own_client)
    assert "none left behind" in look(str(right))
