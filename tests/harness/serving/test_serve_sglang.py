"""``sfusion serve sglang`` starts, ends and refuses with clear messages."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sfusion.harness.cli import app
from tests.fakes.sglang.client import get, post
from tests.harness.serving.serve_sglang import serving
from tests.patience import PATIENCE
from tests.warm import warm


async def test_the_command_serves_with_its_options_and_ends_on_interrupt(tmp_path: Path) -> None:
    faults, journal = tmp_path / "faults.yaml", tmp_path / "journal.ndjson"
    faults.write_text("- {name: flaky, first: 1, what: {status: 503}}\n")
    options = (
        "--port",
        "0",
        "--policy",
        "say:Good day",
        "--served-model-name",
        "tiny",
        "--faults",
        str(faults),
        "--seed",
        "7",
    )
    options += ("--journal", str(journal), "--access-log")
    with serving(*options) as (process, url):
        assert (await post(url, "/generate", {"text": "x"})).status == 503
        assert (await post(url, "/generate", {"text": "x"})).json["text"] == "Good day"
        assert (await get(url, "/v1/models")).json["data"][0]["id"] == "tiny"
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        rest = process.stdout.read()
        assert process.wait(timeout=PATIENCE) == 0
    assert "model tiny" in rest
    assert "1 fault rule from" in rest
    assert rest.endswith("stopped\n")
    assert '"POST /generate" 503' in rest
    events = [json.loads(line)["event"] for line in journal.read_text().splitlines()]
    assert events == ["arrived", "strike", "answered", "arrived", "started", "finished", "answered"]


def test_a_port_in_use_is_reported_in_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [warm("sfusion"), "serve", "sglang", "--port", str(port)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    assert done.returncode == 2
    assert f"port {port} on 127.0.0.1 is in use" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--policy", "genius"], "unknown policy 'genius'; use gsm8k"),
        (["--policy", "script:/does/not/exist.yaml"], "cannot be read"),
        (["--format", "hermies"], "did you mean 'hermes'?"),
        (["--reasoning-parser", "deep"], "There is no reasoning parser 'deep'"),
        (["--host", "0.0.0.0"], "can be reached from other machines"),
        (["--faults", "missing.yaml"], "missing.yaml:1: cannot be read"),
    ],
)
def test_wrong_options_are_refused_before_the_server_starts(options: list[str], why: str) -> None:
    done: Any = CliRunner().invoke(app, ["serve", "sglang", "--port", "0", *options])
    assert done.exit_code == 2
    assert why in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_faults_for_sandboxes_are_refused(tmp_path: Path) -> None:
    faults = tmp_path / "faults.yaml"
    faults.write_text("- {what: {status: 503}}\n- {what: {output: lost}}\n")
    done: Any = CliRunner().invoke(app, ["serve", "sglang", "--port", "0", "--faults", str(faults)])
    assert done.exit_code == 2
    assert "output applies only to sandboxes" in done.stderr


def test_a_wrong_fault_rule_is_reported_with_its_line(tmp_path: Path) -> None:
    for wrong in ("{what: {abort: {att: 3}}}", "{waht: abort}"):
        faults = tmp_path / "faults.yaml"
        faults.write_text(f"faults:\n  - {{what: abort}}\n  - {wrong}\n")
        done: Any = CliRunner().invoke(
            app, ["serve", "sglang", "--port", "0", "--faults", str(faults)]
        )
        assert done.exit_code == 2
        assert f"{faults}:3: " in done.stderr
