"""What training imports: schemas, tools, registry, sandbox client, limiter, execution pool, rollout and reward.

The names below are imported on first use; everything else is imported from its own module.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfusion_tools.base_tool import BaseTool as BaseTool
    from sfusion_tools.batch_metrics import outcome_metrics as outcome_metrics
    from sfusion_tools.errors import SfusionError as SfusionError
    from sfusion_tools.gsm8k_tool import Gsm8kTool as Gsm8kTool
    from sfusion_tools.outcome import Outcome as Outcome
    from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool as SandboxFusionTool
    from sfusion_tools.schemas import ToolResponse as ToolResponse
    from sfusion_tools.tool_registry import initialize_tools_from_config as initialize_tools_from_config

_HOMES = {
    "BaseTool": "base_tool",
    "Gsm8kTool": "gsm8k_tool",
    "Outcome": "outcome",
    "SandboxFusionTool": "sandbox_fusion_tools",
    "SfusionError": "errors",
    "ToolResponse": "schemas",
    "initialize_tools_from_config": "tool_registry",
    "outcome_metrics": "batch_metrics",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sfusion_tools' has no attribute {name!r}")
    return getattr(import_module(f"sfusion_tools.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
