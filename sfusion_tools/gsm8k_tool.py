"""Scores answers to grade-school word problems, as a function and as a tool."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from sfusion_tools.base_tool import TrajectoryTool
from sfusion_tools.errors import ConfigError, near
from sfusion_tools.schemas import OpenAIFunctionToolSchema, ToolResponse, text_tool

Method = Literal["strict", "flexible"]
METHODS: tuple[Method, ...] = ("strict", "flexible")

_STATED = re.compile(r"#### *([-−]?[$]?[0-9.,]*[0-9](?:e[-+]?[0-9]+|/[0-9]+)?)", re.IGNORECASE)
_NUMBER = re.compile(
    r"(?:(?<![\w.)])[-−])?[$]?"  # a minus after a digit, a word or a bracket is not a sign
    # 1,234,567 or 12,34,567
    r"(?:[0-9]{1,3}(?:(?:,[0-9]{3})+|(?:,[0-9]{2})+,[0-9]{3})(?![0-9]|,[0-9])(?:\.[0-9]+)?"
    r"|[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:e[-+]?[0-9]+(?![\w.])|/[0-9]+(?![0-9/]))?",
    re.IGNORECASE,
)
_GROUPED = re.compile(r"(?<=[0-9]),(?=(?:[0-9]{2},)*[0-9]{3}(?![0-9]))")

NO_IMPROVEMENT = -0.05
"""The reward of a step whose answer is no better than the previous one."""

CALC_GSM8K_REWARD = text_tool(
    "calc_gsm8k_reward",
    "A tool for calculating the reward of gsm8k",
    "answer",
    "The model's answer to the GSM8K math problem",
)


def extract_answer(text: str, method: Method = "strict") -> str | None:
    """Return the last answer in a text.

    ``strict`` requires ``####`` before it, ``flexible`` falls back to the last number.
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, found {method!r}")
    found = _STATED.findall(text) or (_NUMBER.findall(text) if method == "flexible" else [])
    return _plain(found[-1]) if found else None


def _plain(number: str) -> str:
    """Return a number without currency and separators of thousands.

    A list such as ``1,2,3`` keeps its commas.
    """
    number = number.replace("$", "").replace("−", "-")
    return number.replace(",", "") if _GROUPED.sub("", number).count(",") == 0 else number


def compute_score(
    solution: str,
    ground_truth: str,
    method: Method = "strict",
    format_score: float = 0.0,
    score: float = 1.0,
) -> float:
    """Return ``score`` for the right answer, ``format_score`` for a wrong one, 0 for none.

    Strict compares the text of the numbers, so 220000.0 is not 220000; flexible compares their
    values.
    """
    answer = extract_answer(solution, method)
    if answer is None:
        return 0.0
    truth = _plain(str(ground_truth).strip())
    if answer == truth or (method == "flexible" and _same_value(answer, truth)):
        return score
    return format_score


def _same_value(left: str, right: str) -> bool:
    try:
        return _value(left) == _value(right)
    except (ValueError, ZeroDivisionError, ArithmeticError):
        return False


def _value(number: str) -> Fraction:
    above, _, below = number.partition("/")
    if any(len(part.lower().partition("e")[2]) > 4 for part in (above, below)):
        raise ValueError("an exponent that no answer has")
    return Fraction(above) / Fraction(below or "1")


@dataclass(slots=True)
class _LastAnswer:
    ground_truth: str | None
    response: str = ""
    reward: float = 0.0


class Gsm8kTool(TrajectoryTool[_LastAnswer]):
    """Scores the model's answer against the ground truth of its trajectory."""

    default_schema = CALC_GSM8K_REWARD

    def __init__(
        self, config: dict[str, Any], tool_schema: OpenAIFunctionToolSchema | None = None
    ) -> None:
        super().__init__(config, tool_schema, _LastAnswer)
        for key in config:
            if key not in ("type", "method"):
                raise ConfigError(
                    f"Gsm8kTool {self.name!r}: unknown key {key!r}; {near(key, ('type', 'method'))}"
                )
        method = config.get("method", "flexible")
        if method not in METHODS:
            raise ConfigError(
                f"Gsm8kTool {self.name!r}: method is {method!r}; {near(str(method), METHODS)}"
            )
        self._method: Method = method

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[ToolResponse, float | None, dict[str, Any] | None]:
        """Score one answer; a step that does not improve on the previous one costs a little."""
        last = self._instance_dict.get(instance_id)
        if last is None or last.ground_truth is None:
            return (
                ToolResponse(text=f"[{self.name}] There is no ground truth to compare with."),
                None,
                {},
            )
        if not isinstance(parameters, dict) or parameters.get("answer") is None:
            text = (
                f"[{self.name}] `answer` is missing; call it with an object such as "
                f'{{"answer": "42"}}'
            )
            return ToolResponse(text=text), NO_IMPROVEMENT, {"outcome": "bad_arguments"}
        try:
            answer = str(parameters["answer"])
        except (ValueError, RecursionError):
            text = f"[{self.name}] `answer` is too long to be read; write a number or a short text"
            return ToolResponse(text=text), NO_IMPROVEMENT, {"outcome": "bad_arguments"}
        last.response = answer if answer.startswith("####") else f"#### {answer}"
        reward = self._score(last)
        improved = reward > last.reward
        last.reward = reward
        return (
            ToolResponse(text=f"Current parsed {answer=} {reward=}"),
            0.0 if improved else NO_IMPROVEMENT,
            {},
        )

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float | None:
        """Return the score of the last answer, None if there is no ground truth."""
        last = self._instance_dict.get(instance_id)
        return None if last is None or last.ground_truth is None else self._score(last)

    def _score(self, last: _LastAnswer) -> float:
        return compute_score(last.response, last.ground_truth or "", self._method)
