"""One Ray cluster for all tests: it takes longer to start than most of them.

Without the extra ``ray`` these tests are not collected.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from tests.patience import PATIENCE

if TYPE_CHECKING:
    from sfusion.harness.lab.worlds.ray_cluster import OwnCluster
    from tests.ray.actors import Gate

collect_ignore_glob = [] if find_spec("ray") is not None else ["*.py"]


ORDER = ("test_single_node", "test_cluster", "test_world", "test_real_sandboxes", "test_killed")
"""While the cluster has one node, then three, then some that are killed."""


@pytest.hookimpl(
    tryfirst=True
)  # xdist reads the groups in the same hook, and before us if this folder was named
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all Ray tests in one xdist worker, on one cluster."""
    ours = [index for index, item in enumerate(items) if "/tests/ray/" in item.path.as_posix()]
    ordered = sorted((items[index] for index in ours), key=lambda item: ORDER.index(item.path.stem))
    for index, item in zip(ours, ordered, strict=True):
        items[index] = item
        item.add_marker(pytest.mark.ray)
        item.add_marker(pytest.mark.xdist_group("ray"))


@pytest.fixture(scope="package")
def place() -> Iterator[OwnCluster]:
    """A cluster on this machine, which grows to the size that is needed."""
    import ray

    from sfusion.harness.lab.worlds import ray_cluster
    from sfusion.harness.lab.worlds.ray_cluster import OwnCluster, inherited_path, open_cluster
    from tests.warm import warm_ray_worker

    with inherited_path():
        worker = warm_ray_worker()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            ray, "get", partial(ray.get, timeout=PATIENCE)
        )  # it swallows the exception of pytest's time limit
        patch.setitem(ray_cluster._NODE, "worker_path", str(worker))
        cluster = open_cluster()
        assert isinstance(cluster, OwnCluster)
        yield cluster
        cluster.close()


@pytest.fixture(scope="package")
def single_node(place: OwnCluster) -> str:
    """The address of a cluster of one node."""
    return place.address


@pytest.fixture(scope="package")
def cluster(place: OwnCluster) -> str:
    """The address of a cluster of three nodes."""
    place.nodes(3, set())
    return place.address


@pytest.fixture(scope="package")
def _gate(place: OwnCluster) -> Gate:
    from tests.ray.actors import Gate

    return Gate()


@pytest.fixture
def gate(_gate: Gate) -> Gate:
    _gate.clear()
    return _gate


@pytest.fixture
def limiter_name(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a limiter for this test, removed afterwards."""
    from sfusion_tools.limiter.ray_limiter import remove

    name = request.node.name
    yield name
    remove(name, forget=True)


@pytest.fixture
def fresh_default_limiter() -> Iterator[None]:
    """Remove the limiter with the default name before and after the test."""
    from sfusion_tools.limiter.ray_limiter import remove

    remove(forget=True)
    yield
    remove(forget=True)
