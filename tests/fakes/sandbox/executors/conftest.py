"""Executors with all the confinement of this machine, and with less."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sfusion.fakes.sandbox.executors.python import PythonExecutor
from sfusion.fakes.sandbox.executors.python.executor import default_path
from tests.fakes.sandbox.executors.liveness import LivenessSocket

on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="confinement is Linux's")


@pytest.fixture(scope="session")
def visible() -> Iterator[Path]:
    """A directory of the machine that programs see, because it is in their search path, but may not
    change."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        os.chmod(directory, 0o755)  # programs may run as a user of their own
        yield Path(directory)


@pytest.fixture(scope="session")
def path(visible: Path) -> str:
    return f"{default_path()}{os.pathsep}{visible}"


@pytest.fixture(scope="session")
def shared(path: str) -> Iterator[Callable[..., PythonExecutor]]:
    """Makes executors that tests share, one for each set of options: to start one is more work than
    most programs."""
    made: list[PythonExecutor] = []

    @cache
    def make(**options: Any) -> PythonExecutor:
        made.append(PythonExecutor(path=path, **options))
        return made[-1]

    yield make
    with asyncio.Runner() as runner:
        for one in made:
            runner.run(one.aclose())


@pytest.fixture
def executor(shared: Callable[..., PythonExecutor]) -> PythonExecutor:
    """An executor with default options."""
    return shared()


@pytest.fixture(params=["namespaces", "no namespaces"])
async def held(
    request: pytest.FixtureRequest, shared: Callable[..., PythonExecutor]
) -> PythonExecutor:
    """An executor with namespaces if available, and one without."""
    if request.param == "no namespaces":
        return shared(namespaces=False)
    if not (await shared().confinement()).namespaces:
        pytest.skip("this machine offers no process namespaces")
    return shared()


@pytest.fixture
async def private(executor: PythonExecutor) -> PythonExecutor:
    """An executor whose requests have their own /tmp and home."""
    if not (await executor.confinement()).namespaces:
        pytest.skip("this machine offers no namespaces, so requests have no private /tmp")
    return executor


@pytest.fixture
def elsewhere(visible: Path) -> Iterator[Path]:
    """A directory that programs of `shared` executors see but may not change."""
    with tempfile.TemporaryDirectory(dir=visible) as directory:
        os.chmod(directory, 0o777)
        yield Path(directory)


@pytest.fixture
def liveness(elsewhere: Path) -> Iterator[LivenessSocket]:
    """A socket to which programs connect, so that a test notices when they die."""
    path = elsewhere / "s"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        path.chmod(0o777)
        listening.listen(64)
        listening.settimeout(30)
        yield LivenessSocket(listening, str(path))
