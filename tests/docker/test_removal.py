"""A run's containers are removed however it ends, and no others are."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from sfusion.harness.real.targets import DockerTarget, open_targets
from sfusion.harness.real.targets.container import remove_leftovers
from sfusion.harness.real.targets.docker_engine import ContainerEngine
from sfusion.harness.real.targets.owner import LABEL, Owner
from tests.docker.calls import containers
from tests.docker.conftest import ROOT

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker"), pytest.mark.timeout(400)]


@contextmanager
def run_of(image: str, how: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a run in its own process; yields it with the name of its container."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.docker.holder", image, how],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("how", "code", "message"),
    [
        ("ends", 0, ""),
        ("raises", 1, "RuntimeError: something else went wrong"),
        ("forgets", 3, ""),  # closes nothing: atexit is the last resort
    ],
)
def test_containers_are_removed_when_a_run_ends(
    engine: ContainerEngine, sandbox_image: str, how: str, code: int, message: str
) -> None:
    with run_of(sandbox_image, how) as (process, name):
        _, errors = process.communicate(timeout=60)
    assert name.startswith("sfusion-")
    assert process.returncode == code, errors
    assert message in errors
    assert name not in containers(engine)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_containers_are_removed_when_a_run_is_interrupted(
    engine: ContainerEngine, sandbox_image: str, number: signal.Signals
) -> None:
    with run_of(sandbox_image, "waits") as (process, name):
        assert name in containers(engine)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors or "Terminated" in errors
    assert name not in containers(engine)


def test_the_next_run_removes_containers_of_a_killed_run_but_not_of_a_living_one(
    engine: ContainerEngine, sandbox_image: str
) -> None:
    with (
        run_of(sandbox_image, "waits") as (killed, left),
        run_of(sandbox_image, "waits") as (_, living),
    ):
        killed.kill()
        killed.wait(timeout=60)
        assert {left, living} <= containers(engine)
        lines: list[str] = []
        with open_targets([DockerTarget(sandbox_image)], say=lines.append):
            assert left not in containers(engine)
            assert living in containers(engine)
    assert f"removed container {left}, left by process {killed.pid}, which is gone" in lines
    assert not any(living in line for line in lines)
    removed = {left, living}.intersection(remove_leftovers(engine, lines.append))
    assert removed == {living}, "run_of killed the second one at the end of its block"


def test_a_stopped_container_of_a_living_run_is_kept(
    engine: ContainerEngine, sandbox_image: str
) -> None:
    with open_targets([DockerTarget(sandbox_image)]) as (sandbox,):
        sandbox.kill()
        lines: list[str] = []
        name = sandbox.container_name  # type: ignore[attr-defined] # it is a container
        assert name not in remove_leftovers(engine, lines.append)
        assert not any(name in line for line in lines)
        sandbox.revive()


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"sfusion": "1", "owner": "sfusion.owner"},
        {LABEL: ""},
        {LABEL: "yes"},
        {LABEL: replace(Owner.here(), host="another machine", started="1").label()},
        {LABEL: replace(Owner.here(), namespace="pid:[1]", started="1").label()},
    ],
    ids=[
        "unlabelled",
        "other labels",
        "empty",
        "unreadable",
        "another machine",
        "another namespace",
    ],
)
def test_containers_without_a_certainly_dead_owner_are_never_removed(
    engine: ContainerEngine, plain: Callable[..., Any], labels: dict[str, str]
) -> None:
    other = plain(command=["true"], labels=labels)
    other.wait()
    lines: list[str] = []
    assert other.name not in remove_leftovers(engine, lines.append)
    other.reload()
    assert any(other.name in line and line.startswith("left alone") for line in lines) == (
        LABEL in labels
    )
