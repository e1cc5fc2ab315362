"""The limiter of a run in world ray: the usual actor, which also records its decisions in the
journal."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sfusion_tools.limiter import LimiterSettings, Snapshot
from sfusion_tools.limiter.book import Observer
from sfusion_tools.limiter.ray_actor import ACTOR_OPTIONS, LimiterActor
from sfusion_tools.limiter.ray_limiter import NAMESPACE, remove

from .recorder import JournalAddress, Recorder, RemoteRecorder

PROCESS = "limiter"
"""The name of its process in the journal."""
_RETRY_SECONDS = 0.05
"""How long to wait for an actor that is being restarted (chosen)."""


class _WatchedLimiter(LimiterActor):
    def __init__(self, limits: dict[str, Any], journal: JournalAddress) -> None:
        self._recorder = RemoteRecorder(journal, PROCESS)
        super().__init__(limits)

    def pid(self) -> int:
        return os.getpid()

    def _observer(self) -> Observer:
        def observe(event: str, client: str, facts: dict[str, object]) -> None:
            self._recorder.note("limiter", event, worker=client, **facts)

        return observe


_actor_class: Any = ray.remote(**ACTOR_OPTIONS)(_WatchedLimiter)


class RunLimiter:
    """The limiter of one run, with a name of its own; it ends with the run."""

    def __init__(
        self,
        name: str,
        settings: LimiterSettings,
        journal: JournalAddress,
        node: str | None,
        recorder: Recorder,
    ) -> None:
        """Create it on a node, or anywhere if ``node`` is None."""
        self.name = name
        self._settings = settings
        self._recorder = recorder
        # Found by its name like any limiter, but not detached: it must not outlive the run on a
        # shared cluster.
        options: dict[str, Any] = {"name": name, "namespace": NAMESPACE}
        if node is not None:
            # When its node dies it may restart anywhere, hence the soft affinity, which Ray
            # respects only for actors that require a resource.
            options |= {
                "num_cpus": 0.001,
                "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=True),
            }
        self._actor = _actor_class.options(**options).remote(asdict(settings), journal)

    @property
    def lease(self) -> float:
        return self._settings.lease

    async def start(self) -> None:
        """Wait until it answers."""
        await self._actor.ping.remote()

    async def pause(self) -> None:
        """Stop its process (SIGSTOP)."""
        self._stopped = await self._ask("pid")
        with suppress(ProcessLookupError):  # killed meanwhile
            os.kill(self._stopped, signal.SIGSTOP)

    async def resume(self) -> None:
        """Let the process that was stopped continue (SIGCONT), if it is still there."""
        with suppress(ProcessLookupError):
            os.kill(self._stopped, signal.SIGCONT)

    async def kill(self, seconds: float | None) -> None:
        """Kill its process; Ray restarts it at once, whatever ``seconds`` says."""
        self._recorder.note("world", "killed", target="limiter")
        ray.kill(self._actor, no_restart=False)

    async def restart(self) -> None:
        """Do nothing: Ray has restarted it already."""

    async def resize(self, rate_limit: int) -> None:
        self._settings = replace(self._settings, rate_limit=rate_limit)
        await self._ask("configure", self._settings)

    async def _ask(self, method: str, *args: Any) -> Any:
        """Call a method, again if the actor is being restarted."""
        while True:
            try:
                return await getattr(self._actor, method).remote(*args)
            except ActorUnavailableError:
                await asyncio.sleep(_RETRY_SECONDS)

    async def snapshot(self) -> Snapshot | None:
        """Return the current state; None when it does not answer."""
        try:
            async with asyncio.timeout(10):
                found: Snapshot = await self._actor.snapshot.remote()
        except (RayError, TimeoutError):
            return None
        return found

    def close(self) -> None:
        """End it without a restart."""
        remove(self.name, forget=True)
