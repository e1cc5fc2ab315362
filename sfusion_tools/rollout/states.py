"""The states of a request, why a turn ended, and why the trajectory ended."""

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
        return self in (AsyncRolloutRequestStateEnum.COMPLETED, AsyncRolloutRequestStateEnum.FAILED)


class FinishReasonTypeEnum(StrEnum):
    """Why the engine ended a turn."""

    LENGTH = "length"
    STOP = "stop"
    TOOL_CALL = "tool_calls"
    ABORT = "abort"

    @classmethod
    def from_str(cls, value: str) -> FinishReasonTypeEnum:
        """Return the reason of this name; ``tool_call`` is accepted too."""
        try:
            return cls("tool_calls" if value == "tool_call" else value)
        except ValueError:
            known = ", ".join(reason.value for reason in cls)
            raise ValueError(f"unknown finish reason {value!r}; expected one of {known}") from None


class EndCause(StrEnum):
    """What ended a trajectory."""

    ANSWERED = "answered"
    """The model ended a turn without a call, and there was no user side to continue."""
    LENGTH = "length"
    """max_response_len or max_model_len was used up, or the engine stopped by length."""
    ASSISTANT_TURNS = "max_assistant_turns"
    USER_TURNS = "max_user_turns"
    INVALID_CALLS = "max_consecutive_invalid_calls"
    INTERACTION = "interaction"
    """The user side ended the conversation."""
    PROMPT_TOO_LONG = "prompt_too_long"
    ENGINE = "engine"
    """The engine raised or aborted."""
    TOOL_CREATION = "tool_creation"
    CANCELLED = "cancelled"
    ERROR = "error"
    """Something else raised: a defect of this code or of an interaction."""
