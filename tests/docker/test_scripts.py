"""The scripts docker/engine and docker/sandbox-image/build."""

from __future__ import annotations

import os
import runpy
import subprocess
from pathlib import Path

import pytest

from sfusion.harness.real.targets.docker_engine import ContainerEngine
from tests.docker.conftest import ROOT

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker"), pytest.mark.timeout(400)]


def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    script, *rest = words
    return subprocess.run(
        [ROOT / "docker" / script, *rest],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_running_engine_is_reused(engine: ContainerEngine, tmp_path: Path) -> None:
    done = run("engine", "start", str(tmp_path), DOCKER_HOST=engine.address)
    assert (done.returncode, done.stdout.strip()) == (0, engine.address), done.stderr
    assert not list(tmp_path.iterdir())
    assert run("engine", "stop", str(tmp_path)).returncode == 0
    assert not tmp_path.exists()


def test_an_image_is_built_once(sandbox_image: str) -> None:
    assert run("sandbox-image/build", "--name").stdout.strip() == sandbox_image
    again = run("sandbox-image/build")
    assert (again.stdout.strip(), again.stderr) == (sandbox_image, "")


def test_the_server_of_the_image_imports_what_is_there() -> None:
    assert "main" in runpy.run_path(str(ROOT / "docker/sandbox-image/server.py"))


def test_without_an_engine_no_image_is_built(tmp_path: Path) -> None:
    done = run("sandbox-image/build", DOCKER_HOST=f"unix://{tmp_path}/docker.sock")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(
        ("sandbox-image: no engine answers: ", "sandbox-image: there is no docker command")
    )


def test_an_unknown_subcommand_is_an_error() -> None:
    done = run("engine", "begin")
    assert done.returncode == 2
    assert "usage: docker/engine start|stop DIR" in done.stderr
