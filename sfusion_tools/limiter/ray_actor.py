"""The cluster's limiter: a named, detached Ray actor that outlives whoever created it.

This module imports Ray, so nothing imports it before a Ray limiter is really used.
"""

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
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get, _internal_kv_put

from sfusion_tools._loops import in_daemon_thread
from sfusion_tools.errors import LimiterUnreachable
from sfusion_tools.limiter.client import Limiter, Permit
from sfusion_tools.limiter.core import LimiterCore, Observer
from sfusion_tools.limiter.host import LimiterHost
from sfusion_tools.limiter.local import LocalTransport, settle_difference
from sfusion_tools.limiter.messages import Batch, Reply, Snapshot
from sfusion_tools.limiter.settings import DEFAULT_RATE_LIMIT, LimiterSettings

logger = logging.getLogger(__name__)

NAMESPACE = "sfusion"
"""One for all jobs: in the job's own namespace every job would get a limiter of its own."""
DEFAULT_NAME = "rate-limiter"
CALLERS = "callers"
"""The client that stands for everybody who uses acquire and release of the plan directly."""
MANY = 1_000_000

_MEMORY = b"sfusion:limiter"


class _Memory:
    """What must survive a restart of the actor, kept with the cluster: the limits, and who may hold permits."""

    def __init__(self, name: str) -> None:
        self._key = f"limiter:{name}".encode()

    def read(self, actor_id: str) -> tuple[LimiterSettings, list[str]] | None:
        """What that very actor wrote last; None in its first life."""
        found = _internal_kv_get(self._key, namespace=_MEMORY)
        record = json.loads(found) if found else {}
        if record.get("actor") != actor_id:
            return None
        return LimiterSettings(**record["settings"]), record["clients"]

    def write(self, actor_id: str, settings: LimiterSettings, clients: Iterable[str]) -> None:
        """Keep this."""
        record = {"actor": actor_id, "settings": asdict(settings), "clients": sorted(clients)}
        _internal_kv_put(self._key, json.dumps(record).encode(), overwrite=True, namespace=_MEMORY)

    def forget(self) -> None:
        """There is no such limiter any more."""
        _internal_kv_del(self._key, namespace=_MEMORY)


class _TokenBucketWorker:
    """The limiter of a cluster. ``acquire`` and ``release`` are the plan's; ``exchange`` and ``wait`` are what our
    own clients use, who renew their leases and may die without taking permits along."""

    def __init__(self, rate_limit: int | dict[str, Any] = DEFAULT_RATE_LIMIT, successor: bool = False) -> None:
        settings = _settings(rate_limit)
        context = ray.get_runtime_context()
        self._id = context.get_actor_id()
        self._memory = _Memory(context.get_actor_name() or self._id)
        learn_from: list[str] | None = None if successor else []
        earlier_life = self._memory.read(self._id)
        if earlier_life is not None:
            settings, learn_from = earlier_life
        self._clients = set(learn_from or ())
        core = LimiterCore(
            settings,
            time.monotonic(),
            incarnation=uuid4().hex[:8],
            # Tickets of a later life are higher than those of an earlier one: nobody takes a million in a second.
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
        self._memory.write(self._id, settings, self._clients)

    def _observer(self) -> Observer | None:
        """Who hears what the rules decide; a subclass may name somebody."""
        return None

    @ray.method(concurrency_group="give")  # type: ignore[untyped-decorator]
    async def exchange(self, batch: Batch) -> Reply:
        """Take in what happened at a client."""
        if batch.client not in self._clients:
            # Whoever may hold permits is written down before it gets one; the dead are struck off on this occasion.
            self._clients = {batch.client, *self._host.clients()}
            self._memory.write(self._id, self._host.settings, self._clients)
        return self._host.exchange(batch)

    @ray.method(concurrency_group="wait")  # type: ignore[untyped-decorator]
    async def wait(self, client: str, epoch: int, at_most: float) -> Reply:
        """Answer when there is news for the client."""
        return await self._host.wait(client, epoch, at_most)

    @ray.method(concurrency_group="wait")  # type: ignore[untyped-decorator]
    async def acquire(self) -> str:
        """Wait in line for a permit and answer with its name. It has no lease: it is out until released."""
        self._loop = asyncio.get_running_loop()
        permit = await self._callers.acquire()
        # A permit may have been handed on under its own id, so each acquisition gets a name of its own:
        # else the second release of one caller would be the first of another.
        name = f"{permit.id}.{next(self._acquisitions)}"
        self._permits[name] = permit
        return name

    @ray.method(concurrency_group="give")  # type: ignore[untyped-decorator]
    async def release(self, permit: str | None = None) -> bool:
        """Give back that permit, or the oldest one out; False when there is none, and then nothing changes."""
        if self._loop is None:
            return False
        give_back = asyncio.run_coroutine_threadsafe(self._give_back(permit), self._loop)
        return await asyncio.wrap_future(give_back)

    async def _give_back(self, name: str | None) -> bool:
        name = next(iter(self._permits), None) if name is None else name
        permit = self._permits.pop(name, None) if name is not None else None
        if permit is None:
            logger.warning("refused to release %s: no such permit is out", name or "a permit")
            return False
        permit.release()
        await self._callers.flush()
        return True

    @ray.method(concurrency_group="look")  # type: ignore[untyped-decorator]
    async def get_current_count(self) -> int:
        """How many permits are out."""
        return self._host.snapshot().in_use

    @ray.method(concurrency_group="look")  # type: ignore[untyped-decorator]
    async def snapshot(self) -> Snapshot:
        """How things stand."""
        return self._host.snapshot()

    @ray.method(concurrency_group="look")  # type: ignore[untyped-decorator]
    async def settings(self) -> LimiterSettings:
        """The limits in force."""
        return self._host.settings

    @ray.method(concurrency_group="look")  # type: ignore[untyped-decorator]
    async def configure(self, settings: LimiterSettings) -> None:
        """Apply other limits."""
        self._host.configure(settings)
        self._memory.write(self._id, settings, self._clients)

    @ray.method(concurrency_group="look")  # type: ignore[untyped-decorator]
    async def ping(self) -> bool:
        """True, from a limiter that lives."""
        return True


class LimiterClass:
    """Creates the limiter as ``TokenBucketWorker.options(name=…, get_if_exists=True).remote(n)``.

    Ray's own class would put a named limiter into the job's namespace and let it die with its creator; a limiter
    with a name is here by default one for all jobs, and detached. Wrong limits are refused at once, not by an actor
    that dies later.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options

    def options(self, **options: Any) -> LimiterClass:
        """The same with Ray's options for actors."""
        return LimiterClass(**{**self._options, **options})

    def remote(self, rate_limit: int | dict[str, Any] = DEFAULT_RATE_LIMIT, successor: bool = False) -> Any:
        """Create the actor, or find it."""
        _settings(rate_limit)
        options = dict(self._options)
        if options.get("name"):
            options = {"namespace": NAMESPACE, "lifetime": "detached", **options}
        return _actor_class.options(**options).remote(rate_limit, successor)


# Waiting, giving back and looking each have threads of their own: any number of waiters cannot keep a release out.
ACTOR_OPTIONS = {"num_cpus": 0, "max_restarts": -1, "concurrency_groups": {"wait": MANY, "give": 64, "look": 16}}
_actor_class: Any = ray.remote(**ACTOR_OPTIONS)(_TokenBucketWorker)
TokenBucketWorker = LimiterClass()


def _settings(limits: int | dict[str, Any]) -> LimiterSettings:
    return LimiterSettings(**limits) if isinstance(limits, dict) else LimiterSettings(limits)


def connect(
    settings: LimiterSettings, name: str = DEFAULT_NAME, *, apply: bool = False, successor: bool = False
) -> Any:
    """The cluster's limiter of that name, created when there is none; blocks until it answers."""
    actor = TokenBucketWorker.options(name=name, get_if_exists=True).remote(asdict(settings), successor)
    running = _answer(actor.settings.remote())
    if running != settings:
        configure = (lambda wanted: _answer(actor.configure.remote(wanted))) if apply else None
        settle_difference(name, running, settings, configure)
    return actor


def _answer(asked: Any) -> Any:
    # ray.get would warn, in every worker of a trainer whose actors are asynchronous, that it blocks the event loop.
    # It would not: connecting happens in a thread of its own.
    return asked.future().result()


def find(name: str = DEFAULT_NAME) -> Any | None:
    """The cluster's limiter of that name, None when there is none."""
    try:
        return ray.get_actor(name, namespace=NAMESPACE)
    except ValueError:
        return None


def remove(name: str = DEFAULT_NAME) -> bool:
    """End the limiter of that name for good; False when there is none."""
    actor = find(name)
    if actor is None:
        return False
    ray.kill(actor, no_restart=True)
    _Memory(name).forget()
    return True


class RayTransport:
    """The way to the cluster's limiter; finds it, or makes a new one, whenever it has gone."""

    def __init__(self, settings: LimiterSettings, name: str = DEFAULT_NAME, *, apply: bool = False) -> None:
        self._settings = settings
        self._name = name
        self._apply = apply
        self._actor: Any = None
        self._had_one = False

    async def exchange(self, batch: Batch) -> Reply:
        """Deliver a batch."""
        if self._actor is None:
            # Ray waits without end for a cluster that is gone, and a process must be able to end all the same.
            self._actor = await in_daemon_thread(self._connect)
            self._had_one = True
        return await self._ask("exchange", batch)

    async def wait(self, client: str, epoch: int, at_most: float) -> Reply:
        """Wait for news."""
        return await self._ask("wait", client, epoch, at_most)

    def farewell(self, client: str) -> None:
        """Say that the client is gone; whether it is heard does not matter, its lease runs out."""
        if self._actor is not None and ray.is_initialized():
            self._actor.exchange.remote(Batch(client, bye=True))

    def _connect(self) -> Any:
        try:
            # A limiter that follows a dead one must not grant before it knows what the living still hold.
            return connect(self._settings, self._name, apply=self._apply, successor=self._had_one)
        except (RayError, ValueError) as error:
            raise LimiterUnreachable(f"limiter {self._name!r}: {_first_line(error)}") from error

    async def _ask(self, method: str, *args: Any) -> Reply:
        actor = self._actor
        if actor is None:
            raise LimiterUnreachable(f"limiter {self._name!r} is gone")
        try:
            reply: Reply = await getattr(actor, method).remote(*args)
        except RayTaskError:
            raise  # the actor is there and raised: a defect of ours, not to be hidden by trying again
        except RayError as error:
            if isinstance(error, RayActorError) and self._actor is actor:
                self._actor = None
            raise LimiterUnreachable(f"limiter {self._name!r}: {_first_line(error)}") from error
        return reply


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def ray_limiter(settings: LimiterSettings, name: str = DEFAULT_NAME, *, apply: bool = False) -> Limiter:
    """The cluster's limiter, for use within one event loop."""
    return Limiter(RayTransport(settings, name, apply=apply))
