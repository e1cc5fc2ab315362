"""An engine and images for the container tests, which are skipped with the reason without them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from sfusion.harness.real.targets import MissingTarget
from sfusion.harness.real.targets.container import Container
from sfusion.harness.real.targets.docker_engine import ContainerEngine, DockerOptions, connected
from tests import ROOT
from tests.docker.calls import containers
from tests.docker.images import REPOSITORY

PATIENCE = 300
"""Seconds for building the image; on a slow machine, build it before the tests."""


@pytest.fixture(scope="session")
def engine() -> Iterator[ContainerEngine]:
    try:
        opened = connected()
        engine = opened.__enter__()
    except MissingTarget as error:
        pytest.skip(str(error))
    yield engine
    opened.__exit__(None, None, None)


@pytest.fixture(scope="session")
def sandbox_image(engine: ContainerEngine) -> str:
    """The name of an image that answers like the sandbox, built if necessary."""
    build = ROOT / "docker/sandbox-image/build"
    made = subprocess.run(
        ["timeout", str(PATIENCE), build], capture_output=True, text=True, check=False
    )
    assert made.returncode in (0, 3, 124), made.stderr  # 3: something outside is missing
    if made.returncode:
        why = (
            f"not within {PATIENCE} s"
            if made.returncode == 124
            else made.stderr.strip().splitlines()[-1]
        )
        pytest.skip(
            f"the image cannot be built: {why}; try {build.relative_to(ROOT)} before the tests"
        )
    return made.stdout.strip()


@pytest.fixture(autouse=True)
def no_container_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Checks every test that uses the engine."""
    if "engine" not in request.fixturenames:
        yield
        return
    engine: ContainerEngine = request.getfixturevalue("engine")
    before = containers(engine)
    yield
    assert containers(engine) <= before


@pytest.fixture(scope="session")
def make_image(engine: ContainerEngine, sandbox_image: str) -> Iterator[Callable[..., str]]:
    """Makes images with another command: ``make_image("dies", ["python3", "-c", "exit(1)"])``."""
    made: list[str] = []

    def make(name: str, command: list[str]) -> str:
        base = engine.client.containers.create(sandbox_image)
        try:
            base.commit(REPOSITORY, name, conf={"Cmd": command})
        finally:
            base.remove()
        made.append(f"{REPOSITORY}:{name}")
        return made[-1]

    yield make
    for image in made:
        engine.client.images.remove(image, force=True)


@pytest.fixture(scope="module")
def container(engine: ContainerEngine, sandbox_image: str) -> Iterator[Container]:
    """A ready container for tests that only inspect it."""
    image = engine.client.images.get(sandbox_image)
    running = Container(engine, image, sandbox_image, DockerOptions())
    try:
        running.start()
        running.wait()
        yield running
    finally:
        running.remove()


@pytest.fixture
def plain(engine: ContainerEngine, sandbox_image: str) -> Iterator[Callable[..., Any]]:
    """Starts containers directly, with any options; all are removed after the test."""
    from docker.errors import NotFound

    made: list[Any] = []

    def start(**options: Any) -> Any:
        made.append(engine.client.containers.run(sandbox_image, detach=True, **options))
        return made[-1]

    yield start
    for one in made:
        with suppress(NotFound):
            one.remove(force=True)
