"""Multi-turn rollouts.

The request is a state machine; a driver runs one request, and ``run_batch`` many.

The names below are imported on first use, so that what needs only the states does not load formats.
"""

from typing import TYPE_CHECKING

from sfusion_tools._lazy import on_first_use as _on_first_use

if TYPE_CHECKING:
    from sfusion_tools.errors import BadLimits, IllegalTransition, TemplateError
    from sfusion_tools.rollout.driver import RolloutDriver, run_batch
    from sfusion_tools.rollout.limits import RolloutLimits, TruncateSide, truncate
    from sfusion_tools.rollout.request import AsyncRolloutRequest, RolloutMetrics
    from sfusion_tools.rollout.states import (
        AsyncRolloutRequestStateEnum,
        EndCause,
        FinishReasonTypeEnum,
    )
    from sfusion_tools.rollout.turns import (
        FoundCall,
        ParsedTurn,
        Refusal,
        ToolResult,
        UnreadableCall,
        format_parser,
    )
    from sfusion_tools.schemas import Message

__all__ = [
    "AsyncRolloutRequest",
    "AsyncRolloutRequestStateEnum",
    "BadLimits",
    "EndCause",
    "FinishReasonTypeEnum",
    "FoundCall",
    "IllegalTransition",
    "Message",
    "ParsedTurn",
    "Refusal",
    "RolloutDriver",
    "RolloutLimits",
    "RolloutMetrics",
    "TemplateError",
    "ToolResult",
    "TruncateSide",
    "UnreadableCall",
    "format_parser",
    "run_batch",
    "truncate",
]

__getattr__ = _on_first_use(
    __name__,
    {
        "sfusion_tools.errors": ["BadLimits", "IllegalTransition", "TemplateError"],
        "sfusion_tools.rollout.driver": ["RolloutDriver", "run_batch"],
        "sfusion_tools.rollout.limits": ["RolloutLimits", "TruncateSide", "truncate"],
        "sfusion_tools.rollout.request": ["AsyncRolloutRequest", "RolloutMetrics"],
        "sfusion_tools.rollout.states": [
            "AsyncRolloutRequestStateEnum",
            "EndCause",
            "FinishReasonTypeEnum",
        ],
        "sfusion_tools.rollout.turns": [
            "FoundCall",
            "ParsedTurn",
            "Refusal",
            "ToolResult",
            "UnreadableCall",
            "format_parser",
        ],
        "sfusion_tools.schemas": ["Message"],
    },
)
