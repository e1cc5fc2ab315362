"""The options of ``sfusion run`` that belong to world ray, and the cluster that they open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from harness.journal import Journal
from harness.runs import Task
from harness.scenarios.model import Scenario
from sfusion_tools.errors import near

_PLACES = ("driver", "node")


@dataclass(frozen=True, slots=True)
class RayOptions:
    """Which cluster, and what listens where."""

    address: str | None = None
    fake_on: str = "driver"
    listen: str = "127.0.0.1"

    def problem(self, world: str, twice: bool) -> str:
        """What is wrong with them; nothing when all is well."""
        if self.fake_on not in _PLACES:
            return f"--fake-on {self.fake_on}: no such place; {near(self.fake_on, _PLACES)}"
        if world == "ray" and twice:
            return "--twice compares journals byte by byte: only world sim can promise that, leave it out for world ray"
        if world != "ray" and self != RayOptions():
            return "--ray-address, --fake-on and --listen belong to --world ray"
        return ""

    @contextmanager
    def opened(self, tasks: list[Task]) -> Iterator[Callable[[Scenario], Journal] | None]:
        """What runs scenarios on one cluster that is gone, or left as it was, afterwards; None for other worlds."""
        if not any(task.world == "ray" for task in tasks):
            yield None
            return
        from harness.worlds.ray_cluster import open_cluster

        cluster = open_cluster(self.address)
        try:
            cluster.check(task.scenario for task in tasks)
            from harness.worlds import ray

            place: ray.SandboxOn = "node" if self.fake_on == "node" else "driver"
            yield partial(ray.run, cluster=cluster, sandbox_on=place, listen=self.listen)
        finally:
            cluster.close()
