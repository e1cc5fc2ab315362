"""Acquire and release of one permit of a Ray cluster, without a tool call."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from benchmarks.benchmark import Contest, in_turn, repeat
from benchmarks.calls import DESIGN
from benchmarks.figures import OURS
from benchmarks.ground import Ground
from sfusion.harness.errors import MissingWorld

ACTOR = "one call of a bare actor"
_names = itertools.count(1)


class BareActor:
    """The least that a call to a Ray actor costs."""

    async def call(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Permits:
    callers: int = 256
    limit: int = 100
    pairs: int = 8192
    """Pairs of one round; the baselines make an eighth of them."""

    @contextmanager
    def open(self, ground: Ground) -> Iterator[Contest]:
        if (why := ground.no_ray()) is not None:
            raise MissingWorld(why)
        import ray

        from benchmarks.original_design import OriginalLimiter
        from sfusion_tools.limiter import LimiterSettings
        from sfusion_tools.limiter.ray_limiter import ray_limiter, remove

        name = f"bench-permits-{next(_names)}"
        limiter = ray_limiter(LimiterSettings(self.limit), name)
        original = OriginalLimiter.remote(self.limit)
        bare = ray.remote(num_cpus=0)(BareActor).remote()

        async def ours() -> None:
            async with limiter.permit():
                pass

        async def design() -> None:
            await original.acquire.remote()
            await original.release.remote()

        async def actor() -> None:
            await bare.call.remote()

        full = ground.size(self.pairs, 2)
        few = full if self.callers == 1 else max(2, full // 8)
        contestants: dict[str, tuple[Callable[[], Awaitable[None]], int]] = {
            OURS: (ours, full),
            DESIGN: (design, few),
        }
        if self.callers == 1:
            contestants[ACTOR] = actor, few
        with asyncio.Runner() as runner:

            def measured(call: Callable[[], Awaitable[None]], count: int) -> float:
                return count / runner.run(repeat(call, self.callers, count))

            try:
                yield in_turn(
                    {who: partial(measured, *contestant) for who, contestant in contestants.items()}
                )
            finally:
                remove(name)
