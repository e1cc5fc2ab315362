"""What the tests run in other processes. Every wait here ends with an event, none with a clock."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sfusion_tools.limiter import Limiter, LimiterSettings, Permit
from sfusion_tools.limiter.ray_actor import ACTOR_OPTIONS, LimiterActor
from sfusion_tools.limiter.ray_limiter import TokenBucketWorker, find, ray_limiter
from tests.sfusion_tools.limiter.holding import give, take


@ray.remote(num_cpus=0, max_concurrency=10_000)
class _Gate:
    """Functions enter and stay until they are let out."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._begin()

    def _begin(self) -> None:
        self._inside: dict[str, asyncio.Event] = {}
        self._arrived: list[str] = []
        self._peak = 0
        self._open = False

    async def clear(self) -> None:
        self._begin()

    async def enter(self, name: str) -> None:
        self._inside[name] = asyncio.Event()
        self._arrived.append(name)
        self._peak = max(self._peak, len(self._inside))
        await self._notify()
        if not self._open:
            await self._inside[name].wait()
        del self._inside[name]

    async def wait_for(self, arrivals: int) -> list[str]:
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._arrived) >= arrivals)
        return self._arrived

    async def let_out(self, name: str) -> None:
        self._inside[name].set()

    async def open(self) -> None:
        self._open = True
        for event in self._inside.values():
            event.set()

    async def peak(self) -> int:
        return self._peak

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


class Gate:
    """The handle of a gate; it can be sent to other processes."""

    def __init__(self) -> None:
        self._actor: Any = _Gate.remote()

    def clear(self) -> None:
        """Forget everyone."""
        ray.get(self._actor.clear.remote())

    def through(self, name: str) -> str:
        """Enter, stay until let out, and return the name."""
        ray.get(self._actor.enter.remote(name))
        return name

    def wait_for(self, arrivals: int) -> list[str]:
        """Wait until that many have entered since the beginning; return their names in order."""
        names: list[str] = ray.get(self._actor.wait_for.remote(arrivals))
        return names

    def let_out(self, name: str) -> None:
        ray.get(self._actor.let_out.remote(name))

    def open(self) -> None:
        """Let everyone out, now and later."""
        ray.get(self._actor.open.remote())

    @property
    def peak(self) -> int:
        """The highest number inside at once."""
        peak: int = ray.get(self._actor.peak.remote())
        return peak


@ray.remote(num_cpus=0, max_concurrency=10_000)
class Holder:
    """A process with a limiter client."""

    def __init__(self, name: str, share: str = "", **settings: Any) -> None:
        self._limiter: Limiter = ray_limiter(LimiterSettings(**settings), name, share=share)
        self._permits: list[Permit[Any]] = []

    async def pid(self) -> int:
        return os.getpid()

    async def acquire(self, count: int = 1) -> list[str]:
        """Acquire permits one after the other; return their ids."""
        taken = [await take(self._limiter) for _ in range(count)]
        self._permits += taken
        return [permit.id for permit in taken]

    async def report(self, gate: Gate, labels: list[str]) -> None:
        """For each label in turn, wait for a permit, enter the gate, and release the permit."""

        async def enter(label: str) -> None:
            async with self._limiter.permit():
                await gate._actor.enter.remote(label)

        await asyncio.gather(*map(enter, labels))

    async def release(self, count: int = 1) -> None:
        """Release permits, and wait until the limiter knows."""
        for _ in range(count):
            await give(self._permits.pop(0))
        await self._limiter.flush()


def snapshot(name: str) -> Any:
    """Return the snapshot of a limiter, which must exist."""
    limiter = find(name)
    assert limiter is not None
    return ray.get(limiter.snapshot.remote())


def until(condition: Callable[[], bool]) -> None:
    """Poll a condition until it holds, with longer and longer pauses: what it waits for needs the
    machine more."""
    pause = 0.002
    while not condition():
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def node_options(number: int) -> dict[str, Any]:
    """Return options that place actors on the two worker nodes in turn."""
    nodes = [
        one
        for one in ray.nodes()
        if one["Alive"] and "node:__internal_head__" not in one["Resources"]
    ]
    ids = sorted(one["NodeID"] for one in nodes)
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(ids[number % 2], soft=False)}


# Here, and not in the modules that use them, because a worker imports the module of its class.


@ray.remote(num_cpus=0)
class OldLimiter:
    """The limiter of an older version, which is still running after an upgrade."""

    async def protocol(self) -> int:
        return 1


class _DelayedLimiter(LimiterActor):
    """In a process whose threads for concurrency groups do nothing before this exists, as on a busy
    machine."""

    def __new__(cls, *_: Any) -> Any:
        if "exists" not in vars(threading):  # Ray calls this twice, before it starts the threads
            threading.exists, run = threading.Event(), threading.Thread.run  # type: ignore[attr-defined]

            def late(thread: threading.Thread) -> None:
                if thread.name.startswith("AsyncIO Thread: ") and not thread.name.endswith(
                    " default"
                ):
                    threading.exists.wait()  # type: ignore[attr-defined]
                run(thread)

            threading.Thread.run = late  # type: ignore[method-assign]
        return super().__new__(cls)

    def _observer(self) -> None:
        threading.exists.set()  # type: ignore[attr-defined]


DelayedLimiter: Any = ray.remote(**ACTOR_OPTIONS)(_DelayedLimiter)


@ray.remote(num_cpus=0)
class Trainer:
    """A process of a training job whose model runs code."""

    def __init__(self, config: dict[str, Any]) -> None:
        from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool

        self._tool = SandboxFusionTool(config)

    async def run(self, prefix: str, calls: int) -> list[str]:
        """Run calls concurrently; return their outcomes."""
        programs = [f"# sfusion:call={prefix}-{n} seconds=0.01\nprint({n})" for n in range(calls)]
        ended = await asyncio.gather(*(self._tool.execute("", {"code": code}) for code in programs))
        return [metrics["outcome"] for _, _, metrics in ended]


@ray.remote(num_cpus=0)
class Process:
    """A process that looks up the limiter as verl's original design does."""

    def __init__(self) -> None:
        self.limiter = TokenBucketWorker.options(name="rate-limiter", get_if_exists=True).remote(3)

    def acquire(self) -> str:
        return ray.get(self.limiter.acquire.remote())

    def release(self) -> bool:
        return ray.get(self.limiter.release.remote())

    def count(self) -> int:
        return ray.get(self.limiter.get_current_count.remote())

    def pid(self) -> int:
        return os.getpid()
