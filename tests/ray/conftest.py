"""Clusters, one at a time: a module of tests starts the one it needs and shares it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.ray.actors import Gate

if TYPE_CHECKING:
    from sfusion.harness.worlds.ray_cluster import OwnCluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything that needs Ray runs in one worker, one cluster after the other."""
    for item in items:
        if "/tests/ray/" in item.path.as_posix():
            item.add_marker(pytest.mark.ray)
            item.add_marker(pytest.mark.xdist_group("ray"))


@pytest.fixture(scope="module")
def single_node() -> Iterator[str]:
    """One node; its address."""
    import ray

    # "local": never a cluster that happens to run on this machine.
    context = ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    yield context.address_info["address"]
    ray.shutdown()


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Three nodes on this machine; the address."""
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
    """A cluster for scenarios; it grows to what they need."""
    from sfusion.harness.worlds.ray_cluster import OwnCluster, open_cluster

    cluster = open_cluster()
    assert isinstance(cluster, OwnCluster)
    yield cluster
    cluster.close()


@pytest.fixture
def gate() -> Gate:
    """A fresh gate."""
    return Gate()


@pytest.fixture
def limiter_name(request: pytest.FixtureRequest) -> Iterator[str]:
    """A limiter of this test's own, removed afterwards."""
    from sfusion_tools.limiter.ray_limiter import remove

    name = request.node.name
    yield name
    remove(name)


@pytest.fixture
def fresh_default_limiter() -> Iterator[None]:
    """The limiter with the default name is not there when the test begins, nor afterwards."""
    from sfusion_tools.limiter.ray_limiter import remove

    remove()
    yield
    remove()
