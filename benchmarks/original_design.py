"""A literal implementation of verl's original design, as a baseline: limiter, pool, tool and a
blocking client.

Written from the design document; nothing outside the benchmarks uses it:
https://github.com/volcengine/verl/blob/6e3df6e7d117e3a22d11e94be64fff4a06983715/docs/sglang_multiturn/sandbox_fusion.rst
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import ray
import requests


class _OriginalLimiter:
    """A semaphore in an actor; acquire has a single thread, so that waiters are served in order."""

    def __init__(self, rate_limit: int) -> None:
        self._semaphore = threading.Semaphore(rate_limit)

    @ray.method(concurrency_group="acquire")  # type: ignore[untyped-decorator]
    def acquire(self) -> None:
        self._semaphore.acquire()

    @ray.method(concurrency_group="release")  # type: ignore[untyped-decorator]
    def release(self) -> None:
        self._semaphore.release()


OriginalLimiter: Any = ray.remote(num_cpus=0, concurrency_groups={"acquire": 1, "release": 10})(
    _OriginalLimiter
)


class OriginalWorker:
    """Runs pickled functions in the threads of an actor, each between an acquire and a release."""

    def __init__(self, limiter: Any) -> None:
        self._limiter = limiter

    def execute(self, fn: Callable[..., Any], *args: Any) -> Any:
        with ExitStack() as stack:
            stack.callback(self._limiter.release.remote)
            ray.get(self._limiter.acquire.remote())
            return fn(*args)


class OriginalTool:
    """Passes its own method, and so a pickle of the whole tool, to the pool with every call."""

    def __init__(self, url: str, *, num_workers: int, rate_limit: int) -> None:
        self._url = url
        self._instances: dict[str, dict[str, Any]] = {}
        limiter = OriginalLimiter.remote(rate_limit)
        self._pool = (
            ray.remote(OriginalWorker)
            .options(max_concurrency=num_workers, num_cpus=0)
            .remote(limiter)
        )

    def create(self, instance_id: str) -> None:
        self._instances[instance_id] = {"response": "", "ground_truth": None, "reward": []}

    async def execute(self, instance_id: str, code: str) -> str:
        result: str = await self._pool.execute.remote(self.execute_code, instance_id, code)
        self._instances[instance_id]["reward"].append(result.strip())
        return result

    def execute_code(self, instance_id: str, code: str, timeout: int = 30) -> str:
        """Send one blocking request on a new connection."""
        body: Any = {
            "code": code,
            "language": "python",
            "run_timeout": timeout,
            "compile_timeout": timeout,
        }
        answer = requests.post(self._url, json=body, timeout=2 * timeout + 10)
        answer.raise_for_status()
        return str(answer.json()["run_result"]["stdout"])
