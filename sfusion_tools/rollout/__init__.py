"""Multi-turn rollout.

The request as a state machine, a driver for one request, and a runner for a batch.
"""

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
