"""Truncation of a tool's text, and validation of limits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfusion_tools.rollout import BadLimits, RolloutLimits, TruncateSide, truncate


@pytest.mark.parametrize(
    ("side", "kept"),
    [
        (TruncateSide.LEFT, "(truncated)...56789"),
        (TruncateSide.RIGHT, "01234...(truncated)"),
        (TruncateSide.MIDDLE, "01...(truncated)...789"),
    ],
)
def test_side_names_the_part_that_is_removed(side: TruncateSide, kept: str) -> None:
    assert truncate("0123456789", 5, side) == kept


@pytest.mark.parametrize("side", list(TruncateSide))
def test_a_text_that_fits_exactly_is_not_cut(side: TruncateSide) -> None:
    assert truncate("0123456789", 10, side) == "0123456789"
    assert truncate("", 1, side) == ""


@settings(max_examples=25)
@given(st.text(max_size=40), st.integers(1, 40), st.sampled_from(TruncateSide))
def test_exactly_the_allowed_number_of_characters_is_kept(
    text: str, limit: int, side: TruncateSide
) -> None:
    shown = truncate(text, limit, side)
    marks = {TruncateSide.MIDDLE: "...(truncated)...", TruncateSide.LEFT: "(truncated)..."}
    mark = marks.get(side, "...(truncated)") if len(text) > limit else ""
    assert len(shown) == min(len(text), limit) + len(mark)


@pytest.mark.parametrize(
    ("limits", "complaint"),
    [
        ({"max_response_len": 0}, "max_response_len is 0: it must be at least 1"),
        ({"max_user_turns": -1}, "max_user_turns is -1: it must be at least 0"),
        ({"max_model_len": "4096"}, "max_model_len is '4096': it must be a whole number, or null"),
        ({"max_parallel_calls": True}, "max_parallel_calls is True: it must be a whole number"),
        (
            {"release_timeout": 0},
            "release_timeout is 0: it must be a number of seconds above 0, or null",
        ),
        (
            {"tool_timeout": float("nan")},
            "tool_timeout is nan: it must be a number of seconds above 0",
        ),
        ({"tool_timeout": "5"}, "tool_timeout is '5': it must be a number"),
        ({"tool_response_truncate_side": "head"}, "must be one of left, right, middle"),
        ({"max_prompt_len": 100, "max_model_len": 100}, "leaves no token for a reply"),
    ],
)
def test_invalid_limits_are_refused(limits: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadLimits, match=complaint):
        RolloutLimits(**limits)
