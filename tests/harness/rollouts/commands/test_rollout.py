"""``sfusion rollout``: the dump it writes, its messages and exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfusion.harness.cli import app
from sfusion.harness.core.dumps.sample import open_dump
from tests import ROOT

pytestmark = pytest.mark.xdist_group("transformers")

RUN = CliRunner()


def test_rollout_writes_a_dump_and_prints_a_summary(tmp_path: Path) -> None:
    done = RUN.invoke(
        app,
        [
            "rollout",
            "--problems",
            "2",
            "--out",
            str(tmp_path / "new" / "dir"),
            "--sandbox-executor",
            "scripted",
        ],
    )
    assert done.exit_code == 0, done.output
    assert "2 samples in" in done.output
    assert "mean score 0.500; calls: ok 2" in done.output
    records = [
        json.loads(line) for line in (tmp_path / "new" / "dir" / "1.jsonl").read_text().splitlines()
    ]
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
def test_wrong_input_exits_with_2_and_a_message(
    tmp_path: Path, options: list[str], message: str
) -> None:
    if "--tokenizer" in options:
        pytest.importorskip("transformers", reason="extra hf is not installed")
    done = RUN.invoke(app, ["rollout", "--problems", "1", "--out", str(tmp_path), *options])
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert "Traceback" not in done.stderr


STUCK = "- {name: stuck, after: 6, what: {hang: 600s}}\n"


def test_a_killed_rollout_leaves_a_dump_of_what_was_done(tmp_path: Path) -> None:
    """The calls after the sixth never end. The process is killed when it has reported half of its
    requests."""
    faults, out = tmp_path / "faults.yaml", tmp_path / "dump"
    faults.write_text(STUCK)
    options = [
        "--problems",
        "10",
        "--sandbox-executor",
        "scripted",
        "--faults",
        str(faults),
        "--out",
        str(out),
    ]
    command = [sys.executable, "-m", "sfusion", "rollout", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            reported = next(line for line in process.stdout if " 5/10 " in line or " 6/10 " in line)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL
    ended = int(reported.split("/")[0].split()[-1])
    step = open_dump(out)[0]
    step.index.extend()
    samples = [step.sample(number) for number in range(len(step))]
    assert ended <= len(samples) <= 6
    assert {sample.problem for sample in samples} == {None}
    assert {sample.fields["state"] for sample in samples} == {"completed"}
    assert len({sample.fields["request_id"] for sample in samples}) == len(samples)
    answers = [sample.output.rpartition("#### ")[2] for sample in samples]
    truths = [str(sample.fields["ground_truth"]) for sample in samples]
    assert [float(answer) for answer in answers] == [float(truth) for truth in truths]


def test_a_rollout_that_is_run_again_replaces_the_dump_of_a_killed_one(tmp_path: Path) -> None:
    for name in ("1.jsonl", "requests/1.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("old\n" * 9)
    done = RUN.invoke(
        app,
        ["rollout", "--problems", "2", "--out", str(tmp_path), "--sandbox-executor", "scripted"],
    )
    assert done.exit_code == 0, done.output
    for name in ("1.jsonl", "requests/1.jsonl"):
        assert [type(json.loads(line)) for line in (tmp_path / name).read_text().splitlines()] == [
            dict,
            dict,
        ]


def test_failed_requests_exit_with_1(tmp_path: Path) -> None:
    done = RUN.invoke(
        app,
        ["rollout", "--problems", "1", "--out", str(tmp_path), "--max-prompt-len", "10"],
    )
    assert done.exit_code == 1
    assert "1 request failed; the first reason: the prompt has" in done.stderr


def test_a_missing_transformers_package_exits_with_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    done = RUN.invoke(app, ["rollout", "--out", str(tmp_path), "--tokenizer", str(tmp_path)])
    assert done.exit_code == 3
    assert "pip install 'sfusion[hf]'" in done.stderr
