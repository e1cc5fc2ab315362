"""The options of ``sfusion run`` that belong to world ray, and the cluster that they open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sfusion.harness.journal import Journal
from sfusion.harness.runs import Task
from sfusion.harness.scenarios.model import Scenario
from sfusion.harness.targets import RealSandbox, Target
from sfusion_tools.errors import near

_PLACES = ("driver", "node")


@dataclass(frozen=True, slots=True)
class RayOptions:
    """Which cluster, and what listens where."""

    address: str | None = None
    fake_on: str = "driver"
    listen: str = "127.0.0.1"

    def problem(self, world: str, twice: bool, *, real: bool = False) -> str:
        """What is wrong with them; nothing when all is well. ``real``: the sandboxes are not fakes."""
        if real and world != "ray":
            return f"--world {world} has no real time to wait for a real sandbox in: leave it out, or say --world ray"
        if real and self.fake_on != "driver":
            return "--fake-on says where the fake lives, and --sandbox names a real one: leave one of them out"
        if self.fake_on not in _PLACES:
            return f"--fake-on {self.fake_on}: no such place; {near(self.fake_on, _PLACES)}"
        if world == "ray" and twice:
            return "--twice compares journals byte by byte: only world sim can promise that, leave it out for world ray"
        if world != "ray" and self != RayOptions():
            return "--ray-address, --fake-on and --listen belong to --world ray"
        return ""

    @contextmanager
    def opened(
        self, tasks: list[Task], real: Sequence[RealSandbox] = (), targets: Sequence[Target] = ()
    ) -> Iterator[Callable[[Scenario], Journal] | None]:
        """What runs scenarios on one cluster that is gone, or left as it was, afterwards; None for other worlds.

        ``real`` are sandboxes to use instead of fakes, opened for these ``targets``.
        """
        if not any(task.world == "ray" for task in tasks):
            yield None
            return
        from sfusion.harness.worlds.ray_cluster import open_cluster

        cluster = open_cluster(self.address)
        try:
            cluster.check(task.scenario for task in tasks)
            from sfusion.harness.worlds import ray

            place: ray.SandboxOn = "node" if self.fake_on == "node" else "driver"

            def run(scenario: Scenario) -> Journal:
                # More were opened than asked for when some scenario needs more; the others use what was asked for.
                mine = real[: max(scenario.sandbox.instances, len(targets))]
                journal = ray.run(scenario, cluster=cluster, sandbox_on=place, listen=self.listen, real=mine)
                if targets:
                    journal.header["sandboxes"] = [str(target) for target in targets]
                return journal

            yield run
        finally:
            cluster.close()
