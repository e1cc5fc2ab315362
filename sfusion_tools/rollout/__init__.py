"""Multi-turn rollout: the request as a state machine, a driver for one request, and one for a batch."""

from __future__ import annotations

from sfusion_tools.rollout.errors import BadLimits, IllegalTransition, RolloutError
from sfusion_tools.rollout.limits import RolloutLimits, TruncateSide, truncate
from sfusion_tools.rollout.messages import Message
from sfusion_tools.rollout.metrics import Refusal, RolloutMetrics
from sfusion_tools.rollout.request import AsyncRolloutRequest
from sfusion_tools.rollout.states import AsyncRolloutRequestStateEnum, EndCause, FinishReasonTypeEnum

__all__ = [
    "AsyncRolloutRequest",
    "AsyncRolloutRequestStateEnum",
    "BadLimits",
    "EndCause",
    "FinishReasonTypeEnum",
    "IllegalTransition",
    "Message",
    "Refusal",
    "RolloutError",
    "RolloutLimits",
    "RolloutMetrics",
    "TruncateSide",
    "truncate",
]
