"""The end-to-end script runs without a GPU and reports what is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.warm import warm

SCRIPT = Path(__file__).parent / "run_gsm8k_fsdp_sgl_multiturn_sf_tool.sh"


def run(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPT), *options],
        env={**os.environ, "PYTHON": str(warm("python")), "PROBLEMS": "4", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script")
def test_the_script_writes_and_checks_dumps(tmp_path: Path) -> None:
    done = run(ROLLOUT_DATA_DIR=str(tmp_path), STEPS="2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "checked 8 samples in 2 files: all as expected" in done.stdout
    assert sorted(path.name for path in tmp_path.glob("*.jsonl")) == ["1.jsonl", "2.jsonl"]


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script")
def test_the_script_fails_when_the_answer_is_missing() -> None:
    done = run("--max-assistant-turns", "1")
    assert done.returncode == 1
    assert "John's bonus is not 220000.0" in done.stdout
