"""These tests run only where verl is installed; elsewhere they are not collected."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

HAS_VERL = find_spec("verl") is not None
collect_ignore_glob = [] if HAS_VERL else ["*.py"]

if HAS_VERL:
    with warnings.catch_warnings():
        # Warnings of verl are not ours to fix; those of our own code during tests are still errors.
        warnings.simplefilter("ignore")
        import verl.experimental.agent_loop
        import verl.tools.schemas  # noqa: F401  # imported here, where its warnings are not errors


def pytest_report_header() -> str | None:
    """Shown if these tests are selected by path; a run of all tests loads this file too late."""
    return (
        None
        if HAS_VERL
        else "verl is not installed here; `tox -e verl` installs it and runs these tests"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore the warnings of verl and its dependencies."""
    for item in items:
        if "/tests/verl/" in item.path.as_posix():
            for module in (
                "verl",
                "torch",
                "tensordict",
                "transformers",
                "hydra",
                "numpy",
                "importlib",
            ):
                item.add_marker(pytest.mark.filterwarnings(f"ignore:::{module}.*"))


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory without weights."""
    from tests.verl.model import save_model

    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A Ray cluster of one node, with enough CPUs for verl's workers."""
    import ray

    # "local": never a cluster that happens to run on this machine.
    ray.init("local", num_cpus=8, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()
