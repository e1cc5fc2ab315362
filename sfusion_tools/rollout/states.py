"""Where a request stands, how a turn ended, and what ended the whole."""

from __future__ import annotations

from enum import StrEnum


class AsyncRolloutRequestStateEnum(StrEnum):
    """The states of a request; COMPLETED and FAILED are final."""

    PENDING = "pending"
    RUNNING = "running"
    TOOL_CALLING = "tool_calling"
    INTERACTING = "interacting"
    COMPLETED = "completed"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """True when nothing more will happen."""
        return self in (AsyncRolloutRequestStateEnum.COMPLETED, AsyncRolloutRequestStateEnum.FAILED)


class FinishReasonTypeEnum(StrEnum):
    """How the engine ended a turn."""

    LENGTH = "length"
    STOP = "stop"
    TOOL_CALL = "tool_calls"
    ABORT = "abort"

    @classmethod
    def from_str(cls, value: str) -> FinishReasonTypeEnum:
        """The reason with this name; ``tool_call`` is understood too."""
        try:
            return cls("tool_calls" if value == "tool_call" else value)
        except ValueError:
            known = ", ".join(reason.value for reason in cls)
            raise ValueError(f"unknown finish reason {value!r}: the engine may answer {known}") from None


class EndCause(StrEnum):
    """What ended a trajectory."""

    ANSWERED = "answered"
    """The model ended a turn without a call, and nobody had more to say."""
    LENGTH = "length"
    """No token was left of max_response_len or max_model_len, or the engine stopped by length."""
    ASSISTANT_TURNS = "max_assistant_turns"
    USER_TURNS = "max_user_turns"
    INVALID_CALLS = "max_consecutive_invalid_calls"
    INTERACTION = "interaction"
    """The user side said that it is over."""
    PROMPT_TOO_LONG = "prompt_too_long"
    ENGINE = "engine"
    """The engine raised or aborted."""
    TOOL_CREATION = "tool_creation"
    CANCELLED = "cancelled"
    ERROR = "error"
    """Something else raised: a fault of this code, or of an interaction."""
