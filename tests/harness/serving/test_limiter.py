"""``sfusion limiter`` where there is no cluster, or one that does not answer: one line, and exit
code 3."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from sfusion.harness.cli import app
from sfusion_tools.limiter import LimiterSettings
from sfusion_tools.limiter.machine import machine_limiter
from tests.ports import closed_port

HASTY = """import sfusion.harness.cli as cli, sfusion.harness.serving.commands.limiter as one
one._LEAST = one._PATIENCE = 1.0
cli.app()"""


def test_nothing_listens_there() -> None:
    address = f"127.0.0.1:{closed_port()}"
    done = CliRunner().invoke(app, ["limiter", "--ray-address", address])
    assert done.exit_code == 3
    assert done.output.startswith(f"no Ray cluster at {address!r}: Connection refused")
    assert len(done.output.splitlines()) == 1


def test_the_cluster_that_ray_remembers_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"127.0.0.1:{closed_port()}"
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(address)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    done = CliRunner().invoke(app, ["limiter"], env={"RAY_ADDRESS": None})
    assert (
        done.exit_code,
        done.output.startswith(f"no Ray cluster at {address!r}: Connection refused"),
    ) == (3, True)


def test_the_limiter_of_this_machine_is_shown_and_resized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sfusion(*options: str) -> Result:
        return CliRunner().invoke(app, ["limiter", "--machine", "--name", "mine", *options])

    monkeypatch.setenv("SFUSION_LIMITER_DIR", str(tmp_path))
    for options in ([], ["--resize", "4"]):
        gone = sfusion(*options)
        assert gone.exit_code == 3
        assert "no process of this machine uses a limiter named 'mine'" in gone.output
    assert sfusion("--remove").exit_code == 2

    async def use() -> None:
        async with machine_limiter(LimiterSettings(3), "mine").permit():
            shown = sfusion().output
            assert "in use         1 of 3" in shown
            assert f"process {os.getpid()}" in shown
            assert "limiter 'mine': rate_limit 3 -> 4" in sfusion("--resize", "4").output
            assert json.loads(sfusion("--json", "-").output) == {
                "rate_limit": 4,
                "width": 4,
                "in_use": 1,
                "holders": {str(os.getpid()): 1},
                "waiting": False,
                "per_second": None,
                "adaptive": False,
            }
            page = sfusion("--metrics").output
            assert 'sfusion_limiter_limit{limiter="mine"} 4' in page
            assert (
                f'sfusion_limiter_client_holds{{limiter="mine",client="{os.getpid()}"}} 1' in page
            )

    asyncio.run(use())


def test_what_listens_there_never_answers() -> None:
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-c", HASTY, "limiter", "--ray-address", address]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert (
        done.stderr
        == f"no answer from the Ray cluster at {address!r} within 1 s: is it still running?\n"
    )
