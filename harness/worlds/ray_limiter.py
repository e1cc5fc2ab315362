"""The cluster's limiter, watched: the same actor, which also tells the journal what it decides."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sfusion.harness.worlds.wire import Wire, WireRecorder
from sfusion_tools.limiter import LimiterSettings, Snapshot
from sfusion_tools.limiter.core import Observer
from sfusion_tools.limiter.ray_actor import ACTOR_OPTIONS, LimiterActor
from sfusion_tools.limiter.ray_limiter import NAMESPACE, remove

PROCESS = "limiter"
"""What it is called on the wire."""


class _WatchedLimiter(LimiterActor):
    def __init__(self, limits: dict[str, Any], wire: Wire) -> None:
        self._recorder = WireRecorder(wire, PROCESS)
        super().__init__(limits)

    def _observer(self) -> Observer:
        def observe(event: str, client: str, facts: dict[str, object]) -> None:
            self._recorder.note("limiter", event, worker=client, **facts)

        return observe


_actor_class: Any = ray.remote(**ACTOR_OPTIONS)(_WatchedLimiter)


class RunLimiter:
    """The limiter of one run, under a name of its own; it is gone when the run is over."""

    def __init__(self, name: str, settings: LimiterSettings, wire: Wire, node: str | None) -> None:
        """Create it, on a node or wherever Ray likes."""
        self.name = name
        self.settings = settings
        # Found by its name like any other, but not detached: it must not outlive the run on somebody's cluster.
        options: dict[str, Any] = {"name": name, "namespace": NAMESPACE}
        if node is not None:
            # When its node dies it may come back anywhere, hence the soft affinity, which Ray heeds only for actors
            # that need something.
            options |= {"num_cpus": 0.001, "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=True)}
        self._actor = _actor_class.options(**options).remote(asdict(settings), wire)

    async def start(self) -> None:
        """Wait until it answers."""
        await self._actor.ping.remote()

    def kill(self) -> None:
        """End its process without a goodbye; Ray starts it again."""
        ray.kill(self._actor, no_restart=False)

    async def resize(self, rate_limit: int) -> None:
        """Other limits from now on."""
        self.settings = LimiterSettings(**{**asdict(self.settings), "rate_limit": rate_limit})
        await self._actor.configure.remote(self.settings)

    async def snapshot(self) -> Snapshot | None:
        """How things stand; None when it does not answer."""
        try:
            async with asyncio.timeout(10):
                found: Snapshot = await self._actor.snapshot.remote()
        except (RayError, TimeoutError):
            return None
        return found

    def close(self) -> None:
        """End it for good."""
        remove(self.name)
