"""World ray: a real cluster and the wall clock; processes are really killed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sfusion.harness.errors import MissingWorld, WorldError
from sfusion.harness.lab.journal import Journal
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.scenarios.real_programs import with_real_programs
from sfusion.harness.lab.worlds.play import note_stuck
from sfusion.harness.lab.worlds.ray_backend import START_SECONDS, RayBackend, SandboxOn
from sfusion.harness.lab.worlds.ray_cluster import RayCluster, killed_nodes, open_cluster
from sfusion.harness.lab.worlds.worker_rollouts import bounds_of
from sfusion.harness.real.targets import RealSandbox

__all__ = ["START_SECONDS", "SandboxOn", "run"]


def run(
    scenario: Scenario,
    *,
    cluster: RayCluster | None = None,
    sandbox_on: SandboxOn = "driver",
    listen: str = "127.0.0.1",
    real: Sequence[RealSandbox] = (),
    start_timeout: float = START_SECONDS,
) -> Journal:
    """Run one cell of a scenario on a cluster (default: one of its own) and return its journal.

    ``listen`` is the address at which workers on other machines reach the journal and the sandbox on this one. ``real``
    are sandboxes to use instead of fakes; the scenario's programs are then real code. ``start_timeout`` is how many
    seconds processes and tools may take to start.
    """
    if cluster is None:
        own = open_cluster()
        try:
            return run(
                scenario, cluster=own, sandbox_on=sandbox_on, listen=listen, real=real, start_timeout=start_timeout
            )
        finally:
            own.close()
    cluster.check([scenario])
    others = cluster.other_machines()
    if others and listen == "127.0.0.1":
        raise MissingWorld(
            f"the cluster has other machines ({', '.join(others[:3])}), which cannot reach 127.0.0.1 on this one; "
            "give --listen with an address that they can reach"
        )
    journal = Journal.begin(scenario=scenario.scenario, cell=scenario.cell, seed=scenario.seed, world="ray")
    scenario = with_real_programs(scenario) if real else scenario
    # Nodes are started here because Ray does that only in the main thread, and it is slow.
    nodes = cluster.nodes(scenario.cluster.nodes, killed_nodes(scenario))
    try:
        bounds = bounds_of(scenario)
        backend = RayBackend(
            scenario, journal, cluster, nodes, bounds, sandbox_on, listen, real=real, start_timeout=start_timeout
        )
        asyncio.run(backend.run())
    except MissingWorld:
        raise
    except WorldError as error:
        note_stuck(journal, error)
    return journal
