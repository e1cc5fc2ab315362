"""Executors with all the confinement of this machine, and with less."""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sfusion.fakes.sandbox.executors.python import PythonExecutor
from tests.fakes.sandbox.executors.liveness import LivenessSocket

on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="confinement is Linux's")


@pytest.fixture
async def executor() -> AsyncIterator[PythonExecutor]:
    """An executor with default options."""
    made = PythonExecutor()
    yield made
    await made.aclose()


@pytest.fixture(params=["namespaces", "no namespaces"])
async def held(request: pytest.FixtureRequest) -> AsyncIterator[PythonExecutor]:
    """An executor with namespaces if available, and one without."""
    made = PythonExecutor(namespaces=None if request.param == "namespaces" else False)
    if request.param == "namespaces" and not (await made.confinement()).namespaces:
        await made.aclose()
        pytest.skip("this machine offers no process namespaces")
    yield made
    await made.aclose()


@pytest.fixture
def liveness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivenessSocket]:
    """A socket to which programs connect, so that a test notices when they die."""
    # Not tmp_path: the path of a local socket may have at most 107 characters.
    path = Path(tmp_path_factory.mktemp("w"), "s")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(64)
        listening.settimeout(30)
        yield LivenessSocket(listening, str(path))
