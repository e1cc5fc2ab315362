"""A tool that tells the model how good its answer to a word problem is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sfusion_tools.base_tool import BaseTool, create_argument
from sfusion_tools.errors import ConfigError, near
from sfusion_tools.gsm8k import METHODS, Method, compute_score
from sfusion_tools.schemas import (
    OpenAIFunctionParametersSchema,
    OpenAIFunctionPropertySchema,
    OpenAIFunctionSchema,
    OpenAIFunctionToolSchema,
    ToolResponse,
)

NO_IMPROVEMENT = -0.05
"""The reward of a step whose answer is no better than the one before."""

CALC_GSM8K_REWARD = OpenAIFunctionToolSchema(
    type="function",
    function=OpenAIFunctionSchema(
        name="calc_gsm8k_reward",
        description="A tool for calculating the reward of gsm8k",
        parameters=OpenAIFunctionParametersSchema(
            type="object",
            properties={
                "answer": OpenAIFunctionPropertySchema(
                    type="string", description="The model's answer to the GSM8K math problem"
                )
            },
            required=["answer"],
        ),
        strict=False,
    ),
)
"""The schema used when a config gives none."""


@dataclass(slots=True)
class _Instance:
    ground_truth: str | None
    response: str = ""
    reward: float = 0.0


class Gsm8kTool(BaseTool):
    """Scores the model's answer against the ground truth of its trajectory."""

    def __init__(self, config: dict[str, Any], tool_schema: OpenAIFunctionToolSchema | None = None) -> None:
        super().__init__(config, tool_schema)
        for key in config:
            if key not in ("type", "method"):
                raise ConfigError(f"Gsm8kTool {self.name!r}: unknown key {key!r}; {near(key, ('type', 'method'))}")
        method = config.get("method", "flexible")
        if method not in METHODS:
            raise ConfigError(f"Gsm8kTool {self.name!r}: method is {method!r}; {near(str(method), METHODS)}")
        self._method: Method = method
        self._instances: dict[str, _Instance] = {}

    def get_openai_tool_schema(self) -> OpenAIFunctionToolSchema:
        """The schema of the config, or our own."""
        return super().get_openai_tool_schema() or CALC_GSM8K_REWARD

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, ToolResponse]:
        """Begin a trajectory with its ``ground_truth``."""
        instance_id = instance_id or uuid4().hex
        truth = create_argument(kwargs, "ground_truth")
        self._instances[instance_id] = _Instance(None if truth is None else str(truth))
        return instance_id, ToolResponse()

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[ToolResponse, float | None, dict[str, Any] | None]:
        """Score one answer; a step that does not improve on the one before costs a little."""
        instance = self._instances.get(instance_id)
        if instance is None or instance.ground_truth is None:
            return ToolResponse(text=f"[{self.name}] There is no ground truth to compare with."), None, {}
        if not isinstance(parameters, dict) or parameters.get("answer") is None:
            text = f'[{self.name}] `answer` is missing; call it with an object such as {{"answer": "42"}}'
            return ToolResponse(text=text), NO_IMPROVEMENT, {"outcome": "bad_arguments"}
        answer = str(parameters["answer"])
        instance.response = answer if answer.startswith("####") else f"#### {answer}"
        reward = self._score(instance)
        improved = reward > instance.reward
        instance.reward = reward
        return ToolResponse(text=f"Current parsed {answer=} {reward=}"), 0.0 if improved else NO_IMPROVEMENT, {}

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float | None:
        """The score of the last answer; None when there is nothing to compare with."""
        instance = self._instances.get(instance_id)
        return None if instance is None or instance.ground_truth is None else self._score(instance)

    def _score(self, instance: _Instance) -> float:
        return compute_score(instance.response, instance.ground_truth or "", self._method)

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        """Forget a trajectory."""
        self._instances.pop(instance_id, None)
