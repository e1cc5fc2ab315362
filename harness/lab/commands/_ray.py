"""The options of ``sfusion run`` for world ray, and the cluster that they open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf

from sfusion.harness.errors import BadOption
from sfusion.harness.lab.journal import Journal
from sfusion.harness.lab.runs import Task
from sfusion.harness.lab.scenarios.model import Scenario, World
from sfusion.harness.real.targets import RealSandbox, Target
from sfusion_tools.errors import near

_PLACES = ("driver", "node")


@dataclass(frozen=True, slots=True)
class RayOptions:
    """Which cluster to use, and where the fake sandbox and the journal listen."""

    address: str | None = None
    fake_on: str = "driver"
    listen: str = "127.0.0.1"
    start_timeout: float | None = None

    def check(self, world: World, twice: bool, *, real: bool) -> None:
        """Raise BadOption if they do not fit the other options. ``real``: the sandboxes are not fakes."""
        if real and world != "ray":
            raise BadOption(f"--world {world}: a real sandbox needs --world ray (the default with --sandbox)")
        if real and self.fake_on != "driver":
            raise BadOption("--fake-on is about the fake, but --sandbox names a real sandbox; leave out one of them")
        if self.fake_on not in _PLACES:
            raise BadOption(f"--fake-on {self.fake_on}: no such place; {near(self.fake_on, _PLACES)}")
        if world == "ray" and twice:
            raise BadOption("--twice compares journals byte by byte, which works only in world sim")
        if world != "ray" and self != RayOptions():
            raise BadOption("--ray-address, --fake-on, --listen and --start-timeout need --world ray")
        if self.start_timeout is not None and not 0 < self.start_timeout < inf:
            raise BadOption(f"--start-timeout {self.start_timeout:g}: give a number of seconds above 0")

    @contextmanager
    def opened(
        self, tasks: list[Task], real: Sequence[RealSandbox] = (), targets: Sequence[Target] = ()
    ) -> Iterator[Callable[[Scenario], Journal] | None]:
        """Open a cluster and yield the function that plays scenarios on it; None for other worlds.

        Afterwards our own cluster is shut down and a given one is left as it was. ``real`` are sandboxes to use instead
        of fakes, opened for these ``targets``.
        """
        if not any(task.world == "ray" for task in tasks):
            yield None
            return
        from sfusion.harness.lab.worlds.ray_cluster import open_cluster

        cluster = open_cluster(self.address)
        try:
            cluster.check(task.scenario for task in tasks)
            from sfusion.harness.lab.worlds import ray

            place: ray.SandboxOn = "node" if self.fake_on == "node" else "driver"

            def play(scenario: Scenario) -> Journal:
                # Some scenarios need more instances than there are targets, so more may be open than this one uses.
                mine = real[: max(scenario.sandbox.instances, len(targets))]
                limit = ray.START_SECONDS if self.start_timeout is None else self.start_timeout
                journal = ray.run(
                    scenario, cluster=cluster, sandbox_on=place, listen=self.listen, real=mine, start_timeout=limit
                )
                if targets:
                    journal.header["sandboxes"] = [str(target) for target in targets]
                return journal

            yield play
        finally:
            cluster.close()
