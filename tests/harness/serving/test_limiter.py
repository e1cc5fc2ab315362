"""``sfusion limiter`` where there is no cluster, or one that does not answer: one line, and exit code 3."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from sfusion.harness.cli import app

HASTY = (
    "import sfusion.harness.serving.commands.limiter as one, sfusion.harness.cli as cli; one._PATIENCE = 1.0; cli.app()"
)


def test_nothing_listens_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    done = CliRunner().invoke(app, ["limiter", "--ray-address", address])
    assert done.exit_code == 3
    assert done.output.startswith(f"no Ray cluster at {address!r}: Connection refused")
    assert len(done.output.splitlines()) == 1


def test_what_listens_there_never_answers() -> None:
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-c", HASTY, "limiter", "--ray-address", address]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr == f"no answer from the Ray cluster at {address!r} within 1 s: is it still running?\n"
