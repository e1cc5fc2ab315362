"""The names of verl's original design: the tool, the limiter and the execution pool.

Ray is imported on first use. The pool runs functions in Ray actors, under the cluster's limiter.
Our own tool does not need it, since its calls run in the caller's event loop. It is kept for code
built on it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import nullcontext
from enum import Enum
from typing import Any, TypeVar
from uuid import uuid4

from sfusion_tools.errors import ConfigError, import_extra
from sfusion_tools.limiter.blocking import BlockingLimiter
from sfusion_tools.limiter.client import Limiter
from sfusion_tools.limiter.messages import Batch, packed
from sfusion_tools.limiter.ray_limiter import RayTransport, TokenBucketWorker, find
from sfusion_tools.limiter.settings import DEFAULT_RATE_LIMIT, LimiterSettings
from sfusion_tools.sandbox.tool import SandboxFusionTool

__all__ = [
    "ExecutionWorker",
    "PoolMode",
    "SandboxFusionTool",
    "TokenBucketWorker",
    "init_execution_pool",
]

logger = logging.getLogger(__name__)

T = TypeVar("T")


class PoolMode(Enum):
    """Where the functions of a pool run."""

    ThreadMode = 1
    """In the threads of one process."""
    ProcessMode = 2
    """Each in its own process: one that dies does not affect the others."""


class ExecutionWorker:
    """Runs functions, each under one permit; a function that fails is logged and returns None."""

    def __init__(
        self,
        enable_global_rate_limit: bool = True,
        rate_limit: int = DEFAULT_RATE_LIMIT,
        client: str | None = None,
    ) -> None:
        settings = LimiterSettings(rate_limit)
        limited = enable_global_rate_limit
        self._limiter = (
            BlockingLimiter(Limiter(RayTransport(settings), name=client)) if limited else None
        )

    def ping(self) -> bool:
        return True

    def execute(self, fn: Callable[..., T], *fn_args: Any, **fn_kwargs: Any) -> T | None:
        """Run ``fn`` once there is a permit for it."""
        with self._limiter.permit() if self._limiter is not None else nullcontext():
            try:
                return fn(*fn_args, **fn_kwargs)
            except (Exception, SystemExit) as error:
                logger.warning("Error when executing code: %s: %s", type(error).__name__, error)
                return None


class ProcessPool:
    """Gives each function to a free worker process and replaces workers whose process died."""

    def __init__(self, num_workers: int, enable_global_rate_limit: bool, rate_limit: int) -> None:
        self._settings = LimiterSettings(rate_limit)
        self._limited = enable_global_rate_limit
        self._free: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        for _ in range(num_workers):
            self._free.put_nowait(self._start())

    def _start(self) -> tuple[str, Any]:
        import ray

        name = uuid4().hex[:12]
        worker = ray.remote(ExecutionWorker).options(num_cpus=0)
        return name, worker.remote(self._limited, self._settings.rate_limit, name)

    async def ping(self) -> bool:
        return True

    async def execute(self, fn: Callable[..., T], *fn_args: Any, **fn_kwargs: Any) -> T | None:
        """Run ``fn`` in the next free worker."""
        from ray.exceptions import RayActorError

        name, worker = await self._free.get()
        try:
            result: T | None = await worker.execute.remote(fn, *fn_args, **fn_kwargs)
            return result
        except RayActorError as error:
            logger.warning(
                "Error when executing code: the process of the function died: %s",
                error.__class__.__name__,
            )
            self._reap(name)
            name, worker = self._start()
            return None
        finally:
            self._free.put_nowait((name, worker))

    def _reap(self, client: str) -> None:
        """Return the dead worker's permit now instead of at the end of its lease."""
        limiter = find() if self._limited else None
        if limiter is not None:
            limiter.exchange.remote(packed(Batch(client, detach=True)))


def init_execution_pool(
    num_workers: int,
    enable_global_rate_limit: bool = True,
    rate_limit: int = DEFAULT_RATE_LIMIT,
    mode: PoolMode = PoolMode.ThreadMode,
) -> Any:
    """Return a Ray actor handle whose ``execute.remote(fn, *args)`` runs a function in the pool."""
    ray = import_extra("ray", extra="ray", needed_by="init_execution_pool")
    if isinstance(num_workers, bool) or not isinstance(num_workers, int) or num_workers < 1:
        raise ConfigError(
            f"num_workers must be a whole number of at least 1, found {num_workers!r}"
        )
    LimiterSettings(rate_limit)
    if mode is PoolMode.ThreadMode:
        pool = ray.remote(ExecutionWorker).options(
            max_concurrency=num_workers, num_cpus=0, max_restarts=-1
        )
        return pool.remote(enable_global_rate_limit, rate_limit)
    if mode is PoolMode.ProcessMode:
        pool = ray.remote(ProcessPool).options(max_concurrency=100_000, num_cpus=0)
        return pool.remote(num_workers, enable_global_rate_limit, rate_limit)
    raise ConfigError(f"mode must be one of {', '.join(map(str, PoolMode))}, found {mode!r}")
