"""The plan taken literally, to measure against: its limiter, its pool, its tool and a client that blocks.

Written anew from the design document of 2025; nothing outside the benchmarks uses it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import ray
import requests


@ray.remote(num_cpus=0, concurrency_groups={"acquire": 1, "release": 10})
class PlanLimiter:
    """A semaphore in an actor; acquire has one thread, so that those who wait are served in order."""

    def __init__(self, rate_limit: int) -> None:
        self._semaphore = threading.Semaphore(rate_limit)

    @ray.method(concurrency_group="acquire")
    def acquire(self) -> None:
        self._semaphore.acquire()

    @ray.method(concurrency_group="release")
    def release(self) -> None:
        self._semaphore.release()


class PlanWorker:
    """Runs pickled functions in the threads of an actor, each between an acquire and a release."""

    def __init__(self, limiter: Any) -> None:
        self._limiter = limiter

    def execute(self, fn: Callable[..., Any], *args: Any) -> Any:
        with ExitStack() as stack:
            stack.callback(self._limiter.release.remote)
            ray.get(self._limiter.acquire.remote())
            return fn(*args)


class PlanTool:
    """Trajectories by instance id, and a pool that is handed a method of the tool, and so the whole tool."""

    def __init__(self, url: str, *, num_workers: int, rate_limit: int) -> None:
        self._url = url
        self._instances: dict[str, dict[str, Any]] = {}
        limiter = PlanLimiter.remote(rate_limit)
        self._pool = ray.remote(PlanWorker).options(max_concurrency=num_workers, num_cpus=0).remote(limiter)

    def create(self, instance_id: str) -> None:
        """Begin a trajectory."""
        self._instances[instance_id] = {"response": "", "ground_truth": None, "reward": []}

    async def execute(self, instance_id: str, code: str) -> str:
        """Run code for a trajectory."""
        result: str = await self._pool.execute.remote(self.execute_code, instance_id, code)
        self._instances[instance_id]["reward"].append(result.strip())
        return result

    def execute_code(self, instance_id: str, code: str, timeout: int = 30) -> str:
        """One blocking request on a connection of its own."""
        body = {"code": code, "language": "python", "run_timeout": timeout, "compile_timeout": timeout}
        answer = requests.post(self._url, json=body, timeout=2 * timeout + 10)
        answer.raise_for_status()
        return str(answer.json()["run_result"]["stdout"])
