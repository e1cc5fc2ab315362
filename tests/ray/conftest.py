"""Ray clusters, one at a time: each test module starts the one it needs and shares it.

Without the extra ``ray`` these tests are not collected.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sfusion.harness.worlds.ray_cluster import OwnCluster
    from tests.ray.actors import Gate

collect_ignore_glob = [] if find_spec("ray") is not None else ["*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all Ray tests in one xdist worker, one cluster after the other."""
    for item in items:
        if "/tests/ray/" in item.path.as_posix():
            item.add_marker(pytest.mark.ray)
            item.add_marker(pytest.mark.xdist_group("ray"))


@pytest.fixture(scope="module")
def single_node() -> Iterator[str]:
    """A cluster of one node; yields its address."""
    import ray

    # "local": never a cluster that happens to run on this machine.
    context = ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    yield context.address_info["address"]
    ray.shutdown()


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A cluster of three nodes on this machine; yields its address."""
    import ray
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    for number in range(2):
        nodes.add_node(num_cpus=2, resources={f"node{number}": 10})
    ray.init(address=nodes.address, log_to_driver=False)
    yield nodes.address
    ray.shutdown()
    nodes.shutdown()


@pytest.fixture(scope="module")
def place() -> Iterator[OwnCluster]:
    """A cluster for scenarios, which grows to the size they need."""
    from sfusion.harness.worlds.ray_cluster import OwnCluster, open_cluster

    cluster = open_cluster()
    assert isinstance(cluster, OwnCluster)
    yield cluster
    cluster.close()


@pytest.fixture
def gate() -> Gate:
    from tests.ray.actors import Gate

    return Gate()


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
