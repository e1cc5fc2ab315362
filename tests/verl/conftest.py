"""Where verl is installed these tests run; elsewhere they are not there, and the suite says nothing of it."""

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
        # Not ours to mend; what our own code warns of while tests run is still an error.
        warnings.simplefilter("ignore")
        import verl.experimental.agent_loop
        import verl.tools.schemas  # noqa: F401  # loaded here, where its warnings are no errors


def pytest_report_header() -> str | None:
    """Said to whoever asks for these tests by name; a run of everything loads this file too late for it."""
    return None if HAS_VERL else "verl is not installed here; `tox -e verl` installs it and runs these tests"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """verl, and what it stands on, warns of its own dependencies."""
    for item in items:
        if "/tests/verl/" in item.path.as_posix():
            for module in ("verl", "torch", "tensordict", "transformers", "hydra", "numpy", "importlib"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore:::{module}.*"))


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory such as a model is loaded from, without weights."""
    from tests.verl.model import save_model

    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A Ray of one node, with room for verl's workers."""
    import ray

    # "local": never a cluster that happens to run on this machine.
    ray.init("local", num_cpus=8, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()
