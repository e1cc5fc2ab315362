"""Multi-turn rollout: the request as a state machine, a driver for one request, and a runner for a batch."""

from __future__ import annotations

from sfusion_tools.errors import BadLimits, EngineAnswerError, IllegalTransition, RolloutError, TemplateError
from sfusion_tools.rollout.driver import Engine, Interaction, RolloutDriver, run_batch
from sfusion_tools.rollout.limits import RolloutLimits, TruncateSide, truncate
from sfusion_tools.rollout.request import AsyncRolloutRequest, Message, RolloutMetrics
from sfusion_tools.rollout.states import AsyncRolloutRequestStateEnum, EndCause, FinishReasonTypeEnum
from sfusion_tools.rollout.turns import (
    FoundCall,
    ParsedTurn,
    PlannedCall,
    Refusal,
    ToolResult,
    TurnParser,
    UnreadableCall,
    format_parser,
)

__all__ = [
    "AsyncRolloutRequest",
    "AsyncRolloutRequestStateEnum",
    "BadLimits",
    "EndCause",
    "Engine",
    "EngineAnswerError",
    "FinishReasonTypeEnum",
    "FoundCall",
    "IllegalTransition",
    "Interaction",
    "Message",
    "ParsedTurn",
    "PlannedCall",
    "Refusal",
    "RolloutDriver",
    "RolloutError",
    "RolloutLimits",
    "RolloutMetrics",
    "TemplateError",
    "ToolResult",
    "TruncateSide",
    "TurnParser",
    "UnreadableCall",
    "format_parser",
    "run_batch",
    "truncate",
]
