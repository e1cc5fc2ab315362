"""The names of the plan: the tool, and the limiter and pool that people built on. Ray is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sfusion_tools.pool import ExecutionWorker, PoolMode, init_execution_pool
from sfusion_tools.sandbox.tool import SandboxFusionTool

if TYPE_CHECKING:
    from sfusion_tools.limiter.ray_actor import TokenBucketWorker

__all__ = ["ExecutionWorker", "PoolMode", "SandboxFusionTool", "TokenBucketWorker", "init_execution_pool"]


def __getattr__(name: str) -> Any:
    if name == "TokenBucketWorker":
        from sfusion_tools.limiter.ray_actor import TokenBucketWorker

        return TokenBucketWorker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
