"""The Ray actor that holds a cluster's limiter. Importing this module imports Ray: ``ray_limiter`` does so on use."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any
from uuid import uuid4

import ray
from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get, _internal_kv_put

from sfusion_tools.limiter.client import Limiter, Permit
from sfusion_tools.limiter.core import LimiterCore, Observer
from sfusion_tools.limiter.host import LimiterHost
from sfusion_tools.limiter.local import LocalTransport
from sfusion_tools.limiter.messages import Batch, LimiterReply, Snapshot
from sfusion_tools.limiter.settings import DEFAULT_RATE_LIMIT, LimiterSettings

logger = logging.getLogger(__name__)

CALLERS = "callers"
"""The one client that stands for everyone who calls the actor's acquire and release directly."""
_KV_NAMESPACE = b"sfusion:limiter"


class PersistedState:
    """What must survive a restart of the actor, kept in the cluster's key-value store: settings and client names."""

    def __init__(self, name: str) -> None:
        self._key = f"limiter:{name}".encode()

    def read(self, actor_id: str) -> tuple[LimiterSettings, list[str]] | None:
        """Return what this same actor wrote last, None on its first start."""
        found = _internal_kv_get(self._key, namespace=_KV_NAMESPACE)
        record = json.loads(found) if found else {}
        if record.get("actor") != actor_id:
            return None
        return LimiterSettings(**record["settings"]), record["clients"]

    def write(self, actor_id: str, settings: LimiterSettings, clients: Iterable[str]) -> None:
        record = {"actor": actor_id, "settings": asdict(settings), "clients": sorted(clients)}
        _internal_kv_put(self._key, json.dumps(record).encode(), overwrite=True, namespace=_KV_NAMESPACE)

    def delete(self) -> None:
        _internal_kv_del(self._key, namespace=_KV_NAMESPACE)


class LimiterActor:
    """The limiter of a cluster.

    ``acquire`` and ``release`` are those of verl's original design. Our own clients use ``exchange`` and ``wait``:
    they renew their leases, so a client that dies does not take permits with it.
    """

    def __init__(self, rate_limit: int | dict[str, Any] = DEFAULT_RATE_LIMIT, successor: bool = False) -> None:
        settings = LimiterSettings.of(rate_limit)
        context = ray.get_runtime_context()
        self._id = context.get_actor_id()
        self._state = PersistedState(context.get_actor_name() or self._id)
        learn_from: list[str] | None = None if successor else []
        before_restart = self._state.read(self._id)
        if before_restart is not None:
            settings, learn_from = before_restart
        self._clients = set(learn_from or ())
        core = LimiterCore(
            settings,
            time.monotonic(),
            incarnation=uuid4().hex[:8],
            # Tickets after a restart are higher than those before it: no limiter issues a million per second.
            first_ticket=time.time_ns() // 1000,
            unleased=[CALLERS],
            learn_from=learn_from,
            observer=self._observer(),
        )
        self._host = LimiterHost(core, time.monotonic)
        self._callers = Limiter(LocalTransport(self._host), name=CALLERS)
        self._permits: dict[str, Permit] = {}
        self._acquisitions = itertools.count(1)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._state.write(self._id, settings, self._clients)

    def _observer(self) -> Observer | None:
        """Return the observer of the core's events; a subclass may override this."""
        return None

    @ray.method(concurrency_group="give")  # type: ignore[untyped-decorator]
    async def exchange(self, batch: Batch) -> LimiterReply:
        if batch.client not in self._clients:
            # A client is written down before it gets its first permit; dead ones are dropped at the same time.
            self._clients = {batch.client, *self._host.clients()}
            self._state.write(self._id, self._host.settings, self._clients)
        return self._host.exchange(batch)

    @ray.method(concurrency_group="wait")  # type: ignore[untyped-decorator]
    async def wait(self, client: str, epoch: int, at_most: float) -> LimiterReply:
        return await self._host.wait(client, epoch, at_most)

    @ray.method(concurrency_group="wait")  # type: ignore[untyped-decorator]
    async def acquire(self) -> str:
        """Wait in the queue for a permit and return its name. It has no lease: it is out until released."""
        self._loop = asyncio.get_running_loop()
        permit = await self._callers.permit().__aenter__()
        # A permit that is handed on keeps its id, so each acquisition gets a name of its own: otherwise the second
        # release by one caller would count as the first release by another.
        name = f"{permit.id}.{next(self._acquisitions)}"
        self._permits[name] = permit
        return name

    @ray.method(concurrency_group="give")  # type: ignore[untyped-decorator]
    async def release(self, permit: str | None = None) -> bool:
        """Release that permit, or the oldest one that is out. Return False and change nothing if there is none."""
        if self._loop is None:
            return False
        release = asyncio.run_coroutine_threadsafe(self._release(permit), self._loop)
        return await asyncio.wrap_future(release)

    async def _release(self, name: str | None) -> bool:
        name = next(iter(self._permits), None) if name is None else name
        permit = self._permits.pop(name, None) if name is not None else None
        if permit is None:
            logger.warning("refused to release %s: no such permit is out", name or "a permit")
            return False
        await permit.__aexit__()
        await self._callers.flush()
        return True

    @ray.method(concurrency_group="look")  # type: ignore[untyped-decorator]
    async def get_current_count(self) -> int:
        """Return how many permits are out."""
        return self._host.snapshot().in_use

    @ray.method(concurrency_group="look")  # type: ignore[untyped-decorator]
    async def snapshot(self) -> Snapshot:
        return self._host.snapshot()

    @ray.method(concurrency_group="look")  # type: ignore[untyped-decorator]
    async def settings(self) -> LimiterSettings:
        return self._host.settings

    @ray.method(concurrency_group="look")  # type: ignore[untyped-decorator]
    async def configure(self, settings: LimiterSettings) -> None:
        self._host.configure(settings)
        self._state.write(self._id, settings, self._clients)

    @ray.method(concurrency_group="look")  # type: ignore[untyped-decorator]
    async def ping(self) -> bool:
        return True


# Waiting, releasing and inspecting each have their own threads: no number of waiters can block a release.
ACTOR_OPTIONS = {"num_cpus": 0, "max_restarts": -1, "concurrency_groups": {"wait": 1_000_000, "give": 64, "look": 16}}
actor_class: Any = ray.remote(**ACTOR_OPTIONS)(LimiterActor)
