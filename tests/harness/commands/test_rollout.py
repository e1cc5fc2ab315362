"""``sfusion rollout``: the dump it writes, its messages and exit codes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfusion.harness.cli import app

RUN = CliRunner()


def test_rollout_writes_a_dump_and_prints_a_summary(tmp_path: Path) -> None:
    done = RUN.invoke(
        app, ["rollout", "--problems", "2", "--out", str(tmp_path / "new" / "dir"), "--sandbox-executor", "scripted"]
    )
    assert done.exit_code == 0, done.output
    assert "2 samples in" in done.output
    assert "mean score 0.500; calls: ok 2" in done.output
    records = [json.loads(line) for line in (tmp_path / "new" / "dir" / "1.jsonl").read_text().splitlines()]
    assert records[0]["output"].endswith("#### 220000.0")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--format", "hermez"], "hermes"),
        (["--policy", "genius"], "unknown policy 'genius'"),
        (["--policy", "misbehaving:often"], "the rate must be a number between 0 and 1"),
        (["--max-response-len", "0"], "max_response_len is 0"),
        (["--max-model-len", "10"], "leaves no token for a reply"),
        (["--sandbox", "not a url"], "not a url"),
        (["--faults", "missing.yaml"], "missing.yaml"),
        (["--tokenizer", "missing"], "missing"),
    ],
)
def test_wrong_input_exits_with_2_and_a_message(tmp_path: Path, options: list[str], message: str) -> None:
    if "--tokenizer" in options:
        pytest.importorskip("transformers", reason="extra hf is not installed")
    done = RUN.invoke(app, ["rollout", "--problems", "1", "--out", str(tmp_path), *options])
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_failed_requests_exit_with_1(tmp_path: Path) -> None:
    done = RUN.invoke(
        app,
        ["rollout", "--problems", "1", "--out", str(tmp_path), "--max-prompt-len", "10"],
    )
    assert done.exit_code == 1
    assert "1 request failed; the first reason: the prompt has" in done.stderr


def test_a_missing_transformers_package_exits_with_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    done = RUN.invoke(app, ["rollout", "--out", str(tmp_path), "--tokenizer", str(tmp_path)])
    assert done.exit_code == 3
    assert "pip install 'sfusion[hf]'" in done.stderr
