"""The limits of a trajectory, and how a tool's text is truncated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from sfusion_tools.errors import BadLimits

TRUNCATED = "(truncated)"


class TruncateSide(StrEnum):
    """The side of a tool's text that is cut *away*.

    As in verl 0.8 and later; up to 0.7.1 it was the side kept.
    """

    LEFT = "left"
    """Keep the end."""
    RIGHT = "right"
    """Keep the beginning."""
    MIDDLE = "middle"
    """Keep the beginning and the end."""


@dataclass(frozen=True)
class RolloutLimits:
    """The limits of one trajectory; None means no limit."""

    max_prompt_len: int | None = None
    """Tokens before the first reply; a request with a longer prompt fails at once."""
    max_response_len: int | None = None
    """Tokens of everything after the prompt: replies, tool messages and user turns."""
    max_model_len: int | None = None
    """Tokens of prompt and response together."""
    max_assistant_turns: int | None = None
    max_user_turns: int | None = None
    """User messages added by an interaction; those in the prompt do not count."""
    max_parallel_calls: int | None = None
    """Calls executed per turn; the others are answered with a message."""
    max_tool_response_length: int | None = None
    """Characters kept of a tool's text, not counting the truncation mark."""
    tool_response_truncate_side: TruncateSide = TruncateSide.MIDDLE
    max_consecutive_invalid_calls: int | None = None
    """Refused calls in a row, across turns, after which the trajectory ends."""
    tool_timeout: float | None = 600.0
    """Seconds for each ``create`` and ``calc_reward`` of a tool."""
    release_timeout: float | None = 30.0
    """Seconds for each ``release`` of a tool, and for whatever was cancelled to stop."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is None or name == "tool_response_truncate_side":
                continue
            wanted = _what_it_must_be(name, value)
            if wanted is not None:
                raise BadLimits(f"{name} is {value!r}: it must be {wanted}, or null for no limit")
        side = _truncate_side(self.tool_response_truncate_side)
        object.__setattr__(self, "tool_response_truncate_side", side)  # the dataclass is frozen
        if self.max_model_len and self.max_prompt_len and self.max_prompt_len >= self.max_model_len:
            raise BadLimits(
                f"max_prompt_len {self.max_prompt_len} leaves no token for a reply in "
                f"max_model_len {self.max_model_len}"
            )

    def tokens_left(self, prompt: int, response: int) -> int | None:
        """Tokens that still fit; negative if the limit is exceeded, None if there is none."""
        left = []
        if self.max_response_len is not None:
            left.append(self.max_response_len - response)
        if self.max_model_len is not None:
            left.append(self.max_model_len - prompt - response)
        return min(left, default=None)


def _what_it_must_be(name: str, value: object) -> str | None:
    """Return what is wanted of a limit instead of this value; None if the value is right."""
    # bool is an int in Python, and `max_user_turns: true` in a YAML file is a mistake.
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if name.endswith("_timeout"):
        if is_number and 0 < value < math.inf:  # type: ignore[operator]
            return None
        return "a number of seconds above 0"
    if not is_number or isinstance(value, float):
        return "a whole number"
    least = 0 if name == "max_user_turns" else 1
    if value < least:  # type: ignore[operator]
        return f"at least {least}"
    return None


def _truncate_side(side: str) -> TruncateSide:
    try:
        return TruncateSide(side)
    except ValueError:
        sides = ", ".join(side.value for side in TruncateSide)
        raise BadLimits(
            f"tool_response_truncate_side is {side!r}: it must be one of {sides}"
        ) from None


def truncate(text: str, limit: int | None, side: TruncateSide = TruncateSide.MIDDLE) -> str:
    """Cut a text to ``limit`` characters and mark the cut; a text that fits is left alone."""
    if limit is None or len(text) <= limit:
        return text
    if side is TruncateSide.LEFT:
        return f"{TRUNCATED}...{text[len(text) - limit :]}"
    if side is TruncateSide.RIGHT:
        return f"{text[:limit]}...{TRUNCATED}"
    head = limit // 2
    return f"{text[:head]}...{TRUNCATED}...{text[len(text) - (limit - head) :]}"
