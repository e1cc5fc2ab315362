"""The Ray clusters that scenarios run on: our own, with several nodes on this machine, or a
running one."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import socket
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from sfusion_tools.errors import MissingExtra

from ...errors import MissingWorld
from ..scenarios.model import Scenario
from .ray_guardian import RayGuardian, guarded_processes
from .replacing import replaced

_REACH_SECONDS = 5.0
_NODE_SECONDS = 90.0
"""How long a node of our own may take to start."""
_LOOK_SECONDS = 0.1
"""How often it is looked whether a node has started (chosen)."""
_CONFIG = {
    # As important as their driver. With Ray's own 15, a worker beside four endless loops per core
    # did not start within 90 s; with 0, its whole run took 36 s (measured).
    "worker_niceness": 0,
    # A killed node is detected after three seconds; a slow one has ten seconds to answer.
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 10_000,
    "health_check_failure_threshold": 3,
}

_NODE = {
    "num_cpus": 2,
    "include_log_monitor": False,
}  # the monitor sends logs to the driver, which shows none


class RayCluster(ABC):
    """What a run needs of a cluster."""

    address: str

    def __init__(self) -> None:
        self._ending = _quiet()
        """What ``close`` does, the last first."""

    def check(self, scenarios: Iterable[Scenario]) -> None:  # noqa: B027 # one of our own runs them all
        """Raise MissingWorld if one of them cannot run on this cluster."""

    @abstractmethod
    def nodes(self, count: int, killed: Collection[int]) -> list[str]:
        """Return ids of nodes for node-1, node-2, ...; the numbers in ``killed`` must be nodes
        that can be killed."""

    def kill_node(self, node: str) -> None:
        """Kill all processes of a node."""
        raise MissingWorld(f"sfusion does not kill nodes of the cluster at {self.address}")

    def other_machines(self) -> list[str]:
        """Return the addresses of nodes on other machines."""
        return []

    def close(self) -> None:
        """Shut the cluster down if it is ours, otherwise disconnect."""
        self._ending.close()


def open_cluster(address: str | None = None) -> RayCluster:
    """Start a cluster, or connect to the one at an address; raise MissingWorld if that fails."""
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("world ray", "ray", error) from error
    if ray.is_initialized():
        raise MissingWorld(
            "this process is already connected to a Ray cluster; call ray.shutdown() first"
        )
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    return OwnCluster() if address is None else GivenCluster(address)


class OwnCluster(RayCluster):
    """Nodes on this machine, started when needed and ended by ``close``. It never joins another
    cluster."""

    def __init__(self) -> None:
        import ray

        super().__init__()
        self._guardian = RayGuardian()
        self._ending.callback(self._guardian.finish)
        try:
            self._cluster = self._start(self._new_cluster)
            self._ending.callback(self._cluster.shutdown)
            self._nodes = [self._cluster.head_node]
            self.address = self._cluster.address
            self._ending.callback(ray.shutdown)
            ray.init(address=self.address, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:  # Ray raises whatever it meets
            self.close()
            raise MissingWorld(
                f"cannot start a Ray cluster on this machine: {_first_line(error)}"
            ) from error
        except BaseException:
            self.close()
            raise

    def _new_cluster(self) -> Any:
        from ray.cluster_utils import Cluster

        head = {
            **_NODE,
            "include_dashboard": False,
            "no_monitor": True,  # of the autoscaler
            "session_name": self._guardian.session,
            "_system_config": _CONFIG,
        }
        with _without_dashboard():
            return Cluster(initialize_head=True, head_node_args=head)

    def _start(self, start: Callable[[], Any]) -> Any:
        """Start a node; once more if that fails: a raylet ends itself if one of its agents is
        slow to start."""
        with inherited_path(), slow_start_allowed():
            before = set(guarded_processes(self._guardian.session))
            try:
                return start()
            except Exception:  # Ray raises whatever it meets
                for pid in set(guarded_processes(self._guardian.session)) - before:
                    with suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                return start()

    def nodes(self, count: int, killed: Collection[int]) -> list[str]:
        """Start as many nodes as needed. The head cannot be killed, so it is used only as a node
        that survives."""
        survivors = [number for number in range(1, count + 1) if number not in killed]
        needed = count if survivors else count + 1
        while len(self._nodes) < needed:
            self._nodes.append(self._start(lambda: self._cluster.add_node(**_NODE)))
        head = self._nodes[0]
        others = iter(self._nodes[1:])
        chosen = []
        for number in range(1, count + 1):
            is_head = bool(survivors) and number == survivors[0]
            chosen.append(head if is_head else next(others))
        return [node.node_id for node in chosen]

    def kill_node(self, node: str) -> None:
        found = next(started for started in self._nodes if started.node_id == node)
        self._nodes.remove(found)
        self._cluster.remove_node(found, allow_graceful=False)


class GivenCluster(RayCluster):
    """A cluster that is already running. Runs remove what they create there and touch nothing
    else."""

    def __init__(self, address: str) -> None:
        import ray

        self.address = address
        reach(address)
        super().__init__()
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:  # Ray raises whatever it meets
            self.close()
            raise MissingWorld(
                f"no Ray cluster answers at {address}: {_first_line(error)}"
            ) from error
        self._ending.callback(ray.shutdown)
        self._here = ray.util.get_node_ip_address()

    def check(self, scenarios: Iterable[Scenario]) -> None:
        """Refuse scenarios that kill nodes."""
        for scenario in scenarios:
            killed = killed_nodes(scenario)
            if killed:
                raise MissingWorld(
                    f"{scenario.title} kills node-{min(killed)}, but sfusion does not kill "
                    "nodes of a given cluster; "
                    f"run it without --ray-address, or skip it with -k 'not {scenario.scenario}'"
                )

    def nodes(self, count: int, killed: Collection[int]) -> list[str]:
        """Return the cluster's nodes in turn; if it has fewer than the scenario, some are used
        several times."""
        import ray

        ids = sorted(node["NodeID"] for node in ray.nodes() if node["Alive"])
        return [ids[number % len(ids)] for number in range(count)]

    def other_machines(self) -> list[str]:
        import ray

        there = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
        return sorted(there - {self._here, "127.0.0.1"})


@contextmanager
def inherited_path() -> Iterator[None]:
    """Let processes that are started meanwhile, and their children, import what this one can
    import."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _without_dashboard() -> AbstractContextManager[None]:
    """Ray starts the server of its dashboard even with ``include_dashboard=False``; nothing here
    asks it anything."""
    return _replaced(getattr(_private("node"), "Node", None), "start_api_server", _silence)


def slow_start_allowed() -> AbstractContextManager[None]:
    """Keep asking for a node while its raylet runs: Ray gives up after 30 s, and its agents can
    be slow to import."""

    def patient(ask: Callable[..., Any]) -> Callable[..., Any]:
        def get_node(gcs: str, node: str, *args: Any, **options: Any) -> Any:
            end = time.monotonic() + _NODE_SECONDS
            seen = False
            while True:
                try:
                    return ask(gcs, node, *args, **options)
                except RuntimeError as error:  # not registered yet
                    runs = bool(_raylet_of(node))
                    if time.monotonic() >= end or (seen and not runs):
                        raise ChildProcessError(
                            f"the raylet of a node did not start: {_first_line(error)}"
                        ) from error
                    seen = runs
                time.sleep(_LOOK_SECONDS)

        return get_node

    return _replaced(_private("services"), "get_node", patient)


def _raylet_of(node: str) -> int:
    """Return the raylet that runs for a node, whose id is in its command line; 0 if there is
    none."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it is gone
            program, *options = file.read_bytes().split(b"\0")
            if program.endswith(b"raylet") and f"--node_id={node}".encode() in options:
                return int(file.parent.name)
    return 0


def _private(module: str) -> Any:
    """Return a private module of Ray's, None if it is gone."""
    with suppress(ImportError):
        return importlib.import_module(f"ray._private.{module}")
    return None


def _silence(_: Any) -> Callable[..., None]:
    return lambda *_, **__: None


def _replaced(
    owner: Any, name: str, replacement: Callable[[Any], Any]
) -> AbstractContextManager[None]:
    """Replace a function of Ray's if it is there."""
    original = getattr(owner, name, None)
    if original is None:
        return nullcontext()
    return replaced(owner, **{name: replacement(original)})


def killed_nodes(scenario: Scenario) -> set[int]:
    """Return the numbers of the nodes that a scenario kills."""
    targets = [str(event.target) for event in scenario.events if event.kind == "kill"]
    return {int(target.removeprefix("node-")) for target in targets if target.startswith("node-")}


def reach(address: str) -> None:
    """Raise MissingWorld if nothing listens at HOST:PORT; Ray itself would retry for minutes."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        raise MissingWorld(
            f"{address!r} is not the address of a Ray cluster; give HOST:PORT (of Ray's "
            "GCS) or auto"
        )
    try:
        socket.create_connection((host, int(port)), timeout=_REACH_SECONDS).close()
    except OSError as error:
        why = error.strerror or str(error)
        raise MissingWorld(
            f"no Ray cluster answers at {address}: {why}; start it, or give another address"
        ) from error


def _quiet() -> ExitStack:
    """Keep Ray's messages about dying nodes off the terminal until this is closed: they are
    killed on purpose."""
    stack = ExitStack()
    logger = logging.getLogger("ray")
    stack.callback(logger.setLevel, logger.level)
    logger.setLevel(logging.ERROR)
    stack.enter_context(_replaced(_private("worker"), "print_to_stdstream", _silence))
    return stack


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).partition("\n")[0]
