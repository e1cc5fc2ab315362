"""What training imports: runner, tools, registry, sandbox client, limiter, rollout, reward.

The names below are imported on first use; everything else is imported from its own module.
"""

from __future__ import annotations

from sfusion_tools._lazy import on_first_use as _on_first_use

TYPE_CHECKING = False  # as in sfusion_tools/_lazy.py
if TYPE_CHECKING:
    from sfusion_tools.base_tool import BaseTool
    from sfusion_tools.batch_metrics import outcome_metrics
    from sfusion_tools.errors import SfusionError
    from sfusion_tools.gsm8k_tool import Gsm8kTool
    from sfusion_tools.outcome import Outcome
    from sfusion_tools.runner import CodeResult, CodeRunner
    from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool
    from sfusion_tools.schemas import ToolResponse
    from sfusion_tools.tool_registry import initialize_tools_from_config

__all__ = [
    "BaseTool",
    "CodeResult",
    "CodeRunner",
    "Gsm8kTool",
    "Outcome",
    "SandboxFusionTool",
    "SfusionError",
    "ToolResponse",
    "initialize_tools_from_config",
    "outcome_metrics",
]

__getattr__ = _on_first_use(
    __name__,
    {
        "sfusion_tools.base_tool": ["BaseTool"],
        "sfusion_tools.batch_metrics": ["outcome_metrics"],
        "sfusion_tools.errors": ["SfusionError"],
        "sfusion_tools.gsm8k_tool": ["Gsm8kTool"],
        "sfusion_tools.outcome": ["Outcome"],
        "sfusion_tools.runner": ["CodeResult", "CodeRunner"],
        "sfusion_tools.sandbox_fusion_tools": ["SandboxFusionTool"],
        "sfusion_tools.schemas": ["ToolResponse"],
        "sfusion_tools.tool_registry": ["initialize_tools_from_config"],
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
