"""The Ray actor that holds a cluster's limiter. Importing this module imports Ray: ``ray_limiter`` does so on use."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any
from uuid import uuid4

import ray

from sfusion_tools.errors import LimiterError
from sfusion_tools.limiter.blocking import CALLERS, DirectCallers, permit_id
from sfusion_tools.limiter.book import Observer
from sfusion_tools.limiter.core import LimiterCore
from sfusion_tools.limiter.host import LimiterHost, LocalTransport, RunningClock
from sfusion_tools.limiter.messages import PROTOCOL, Batch, Snapshot, packed, unpacked
from sfusion_tools.limiter.record import RecordStore, learning_of
from sfusion_tools.limiter.settings import DEFAULT_RATE_LIMIT, LimiterSettings


class LimiterActor:
    """The limiter of a cluster.

    ``acquire`` and ``release`` are those of verl's original design. Our own clients use ``exchange`` and ``wait``:
    they renew their leases, so a client that dies does not take permits with it.
    """

    def __init__(self, rate_limit: int | dict[str, Any] = DEFAULT_RATE_LIMIT) -> None:
        settings = LimiterSettings.of(rate_limit)
        context = ray.get_runtime_context()
        self._id = context.get_actor_id()
        self._store = RecordStore(context.get_actor_name() or self._id)
        record = self._store.read()
        if record is not None and record.actor == self._id:
            settings = LimiterSettings(**record.settings)
        since_removal = self._store.seconds_since_removal(record.actor) if record is not None else None
        learn_from, learn_for = learning_of(record, settings, since_removal)
        callers = self._store.read_callers()
        clock = RunningClock()
        clock.keep_running()
        core = LimiterCore(
            settings,
            clock(),
            incarnation=uuid4().hex[:8],
            # Tickets after a restart are higher than those before it: no limiter issues a million per second.
            first_ticket=time.time_ns() // 1000,
            unleased={CALLERS: tuple(dict.fromkeys(map(permit_id, callers)))},
            learn_from=learn_from,
            learn_for=learn_for,
            observer=self._observer(),
        )
        self._host = LimiterHost(core, clock)
        self._callers = DirectCallers(LocalTransport(self._host), callers, self._store.write_callers)
        self._recording = threading.Lock()
        self._record()

    def _observer(self) -> Observer | None:
        """Return the observer of the core's events; a subclass may override this."""
        return None

    def _record(self, attaching: Batch | None = None) -> None:
        self._store.write(self._host.record(self._id, attaching))

    @ray.method(concurrency_group="quick")  # type: ignore[untyped-decorator]
    async def exchange(self, message: bytes) -> bytes:
        batch: Batch = _read(message)
        if batch.attach is None:
            return packed(self._host.exchange(batch))
        if batch.attach.protocol != PROTOCOL:
            raise _other_protocol(batch.client, batch.attach.protocol)
        with self._recording:
            self._record(batch)
            return packed(self._host.exchange(batch))

    async def wait(self, message: bytes) -> bytes:
        return packed(await self._host.wait(_read(message)))

    async def acquire(self) -> str:
        """Wait in the queue for a permit and return its name. It has no lease: it is out until released."""
        return await asyncio.wrap_future(self._callers.acquire())

    @ray.method(concurrency_group="quick")  # type: ignore[untyped-decorator]
    async def release(self, permit: str | None = None) -> bool:
        """Release that permit, or the oldest one that is out. Return False and change nothing if there is none."""
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
        with self._recording:
            self._host.configure(settings)
            self._record()

    @ray.method(concurrency_group="quick")  # type: ignore[untyped-decorator]
    async def ping(self) -> bool:
        return True


def _read(message: Any) -> Any:
    if not isinstance(message, bytes):  # a tuple, of protocol 2 or older
        raise _other_protocol(message[0], "an older one")
    return unpacked(message)


def _other_protocol(client: str, theirs: object) -> LimiterError:
    return LimiterError(
        f"this limiter speaks protocol {PROTOCOL}, the client {client} speaks {theirs}: "
        "use the same version of sfusion in all jobs of a cluster"
    )


ACTOR_OPTIONS = {
    "num_cpus": 0,
    "max_restarts": -1,
    "max_concurrency": 1_000_000,
    "concurrency_groups": {"quick": 80},
}
"""Calls that wait, and calls that end at once, each have a thread: no number of waiters can block a release.

There is only one named group: a thread of Ray's looks up its event loop when it begins, and on a busy machine this can
be the loop of the next group already. Then nobody runs its own, and calls to its group wait for ever.
"""
actor_class: Any = ray.remote(**ACTOR_OPTIONS)(LimiterActor)
