"""The commands ``rollout`` and ``view``: what they write, and what they say when the input is wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfusion.harness.cli import app

RUN = CliRunner()


def test_rollout_dumps_and_sums_up(tmp_path: Path) -> None:
    done = RUN.invoke(
        app, ["rollout", "--problems", "2", "--out", str(tmp_path / "new" / "dir"), "--sandbox-executor", "scripted"]
    )
    assert done.exit_code == 0, done.output
    assert "2 samples in" in done.output
    assert "mean score 0.500; calls: ok 2" in done.output
    records = [json.loads(line) for line in (tmp_path / "new" / "dir" / "1.jsonl").read_text().splitlines()]
    assert records[0]["output"].endswith("#### 220000.0")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--format", "hermez"], "hermes"),
        (["--policy", "genius"], "unknown policy 'genius'"),
        (["--max-response-len", "0"], "max_response_len is 0"),
        (["--max-model-len", "10"], "leaves no token for a reply"),
        (["--sandbox", "not a url"], "not a url"),
        (["--faults", "missing.yaml"], "missing.yaml"),
        (["--tokenizer", "missing"], "missing"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_2(tmp_path: Path, options: list[str], complaint: str) -> None:
    if "--tokenizer" in options:
        pytest.importorskip("transformers", reason="extra hf is not installed")
    done = RUN.invoke(app, ["rollout", "--problems", "1", "--out", str(tmp_path), *options])
    assert done.exit_code == 2, done.output
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_requests_that_fail_make_it_exit_1(tmp_path: Path) -> None:
    done = RUN.invoke(
        app,
        ["rollout", "--problems", "1", "--out", str(tmp_path), "--max-prompt-len", "10"],
    )
    assert done.exit_code == 1
    assert "1 requests failed, the first one because: the prompt has" in done.stderr


def test_a_missing_tokenizer_package_is_exit_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    done = RUN.invoke(app, ["rollout", "--out", str(tmp_path), "--tokenizer", str(tmp_path)])
    assert done.exit_code == 3
    assert "pip install 'sfusion[hf]'" in done.stderr


def test_view_refuses_a_place_without_dumps(tmp_path: Path) -> None:
    done = RUN.invoke(app, ["view", str(tmp_path)])
    assert done.exit_code == 2
    assert "holds no .jsonl file" in done.stderr


def test_view_without_its_extra_is_exit_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        name for name in sys.modules if name.split(".")[0] == "textual" or name == "sfusion.harness.viewer.app"
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "textual", None)
    done = RUN.invoke(app, ["view", str(tmp_path)])
    assert done.exit_code == 3
    assert "pip install 'sfusion[view]'" in done.stderr
