"""The wheel of this checkout, installed where only the core's dependencies and pytest are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import ROOT
from tests.sfusion.installing import Environment, build, core_requirements


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def core(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Environment:
    """An environment with the wheel, its core dependencies and pytest: no ray, no faker, no other
    extra."""
    environment = Environment(
        tmp_path_factory.mktemp("core") / "venv", [*core_requirements(wheel), "pytest"]
    )
    environment.install(str(wheel))
    return environment


@pytest.fixture(scope="session")
def editable(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Environment:
    """The same with an editable install of this checkout."""
    wanted = [*core_requirements(wheel), "pytest", "hatchling"]
    environment = Environment(tmp_path_factory.mktemp("editable") / "venv", wanted)
    environment.install("-e", str(ROOT))
    return environment
