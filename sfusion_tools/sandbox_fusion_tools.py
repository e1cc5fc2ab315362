"""The names of verl's original design: the tool, the limiter and the execution pool. Ray is imported on first use."""

from sfusion_tools.limiter.ray_limiter import TokenBucketWorker
from sfusion_tools.pool import ExecutionWorker, PoolMode, init_execution_pool
from sfusion_tools.sandbox.tool import SandboxFusionTool

__all__ = ["ExecutionWorker", "PoolMode", "SandboxFusionTool", "TokenBucketWorker", "init_execution_pool"]
