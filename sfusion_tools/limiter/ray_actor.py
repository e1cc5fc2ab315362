"""The Ray actor that holds a cluster's limiter.

Importing this module imports Ray: ``ray_limiter`` does so on use.
"""

from __future__ import annotations

import asyncio
from typing import Any

import ray

from sfusion_tools.limiter.blocking import CALLERS, DirectCallers, permit_id
from sfusion_tools.limiter.book import Observer
from sfusion_tools.limiter.host import LocalTransport
from sfusion_tools.limiter.messages import PROTOCOL, Snapshot, packed, unpacked
from sfusion_tools.limiter.record import RecordedLimiter, RecordStore
from sfusion_tools.limiter.settings import DEFAULT_RATE_LIMIT, LimiterSettings


class LimiterActor:
    """The limiter of a cluster.

    ``acquire`` and ``release`` are those of verl's original design. Our own clients use
    ``exchange`` and ``wait``: they renew their leases, so a client that dies does not take permits
    with it.
    """

    def __init__(self, rate_limit: int | dict[str, Any] = DEFAULT_RATE_LIMIT) -> None:
        settings = LimiterSettings.of(rate_limit)
        context = ray.get_runtime_context()
        self._store = RecordStore(context.get_actor_name() or context.get_actor_id())
        callers = self._store.read_callers()
        unleased = {CALLERS: tuple(dict.fromkeys(map(permit_id, callers)))}
        self._limiter = RecordedLimiter(
            context.get_actor_id(),
            self._store,
            settings,
            unleased=unleased,
            observer=self._observer(),
        )
        self._host = self._limiter.host
        self._callers = DirectCallers(
            LocalTransport(self._host), callers, self._store.write_callers
        )

    def _observer(self) -> Observer | None:
        """Return the observer of the core's events; a subclass may override this."""
        return None

    @ray.method(concurrency_group="quick")  # type: ignore[untyped-decorator]
    async def exchange(self, message: bytes) -> bytes:
        return packed(self._limiter.exchange(unpacked(message)))

    async def wait(self, message: bytes) -> bytes:
        return packed(await self._host.wait(unpacked(message)))

    async def acquire(self) -> str:
        """Wait in the queue for a permit and return its name.

        The permit has no lease: it is out until released.
        """
        return await asyncio.wrap_future(self._callers.acquire())

    @ray.method(concurrency_group="quick")  # type: ignore[untyped-decorator]
    async def release(self, permit: str | None = None) -> bool:
        """Release that permit, or the oldest one that is out.

        Return False and change nothing if there is none.
        """
        return await asyncio.wrap_future(self._callers.release(permit))

    @ray.method(concurrency_group="quick")  # type: ignore[untyped-decorator]
    async def get_current_count(self) -> int:
        """Return how many permits are out."""
        return self._host.snapshot().in_use

    @ray.method(concurrency_group="quick")  # type: ignore[untyped-decorator]
    async def snapshot(self) -> Snapshot:
        return self._host.snapshot()

    @ray.method(concurrency_group="quick")  # type: ignore[untyped-decorator]
    async def protocol(self) -> int:
        return PROTOCOL

    @ray.method(concurrency_group="quick")  # type: ignore[untyped-decorator]
    async def settings(self) -> LimiterSettings:
        return self._host.settings

    @ray.method(concurrency_group="quick")  # type: ignore[untyped-decorator]
    async def configure(self, settings: LimiterSettings) -> None:
        self._limiter.configure(settings)

    @ray.method(concurrency_group="quick")  # type: ignore[untyped-decorator]
    async def ping(self) -> bool:
        return True


ACTOR_OPTIONS = {
    "num_cpus": 0,
    "max_restarts": -1,
    "max_concurrency": 1_000_000,
    "concurrency_groups": {"quick": 80},
}
"""Calls that wait, and calls that end at once, each have a thread.

So no number of waiters can block a release. There is only one named group: a thread of Ray's looks
up its event loop when it begins, and on a busy machine this can be the loop of the next group
already. Then nobody runs its own, and calls to its group wait for ever.
"""
actor_class: Any = ray.remote(**ACTOR_OPTIONS)(LimiterActor)
