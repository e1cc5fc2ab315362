"""doctor and drift need no extras, except for containers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
for name in ("ray", "faker", "docker"):
    sys.modules[name] = None
from typer.testing import CliRunner
from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.cli import app

def sfusion(*arguments):
    done = CliRunner().invoke(app, list(arguments))
    print(arguments[0], done.exit_code, done.stderr.splitlines()[-1:], flush=True)

with FakeSandbox(executor="python") as sandbox:
    options = "--quick --languages python --packages json --timeout 30"
    sfusion("doctor", sandbox.url, *options.split())
    sfusion("drift", sandbox.url, "--record", "answers.jsonl", "-k", "http/ping")
sfusion("drift", "answers.jsonl", "-k", "http/ping")
sfusion("doctor", "docker")
sfusion("drift", "docker")
sfusion("run", "--sandbox", "docker")
sfusion("drift", "docker", "--record", "more.jsonl")
"""


def test_docker_extra_is_needed_only_for_containers(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    assert [line.rsplit(" ")[:2] for line in lines[:3]] == [
        ["doctor", "0"],
        ["drift", "0"],
        ["drift", "0"],
    ], done
    missing = "a docker sandbox needs an extra that is not installed"
    for line, command in zip(lines[3:], ("doctor", "drift", "run", "drift"), strict=True):
        assert line.startswith(f"{command} 3 "), line
        assert missing in line
        assert "pip install 'sfusion[docker]'" in line
