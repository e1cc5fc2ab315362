"""The interface that every tool has, verl's own."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from sfusion_tools.schemas import OpenAIFunctionToolSchema, ToolResponse


class BaseTool:
    """A tool the model may call; one object serves many trajectories, told apart by ``instance_id``.

    create -> execute (any number of times) -> calc_reward -> release.
    """

    def __init__(self, config: dict[str, Any], tool_schema: OpenAIFunctionToolSchema | None = None) -> None:
        schema = tool_schema or self.get_openai_tool_schema()
        if schema is None:
            raise ValueError(
                f"{type(self).__name__} was given no tool_schema and brings none of its own: "
                "pass one, or override get_openai_tool_schema()"
            )
        self.config = config
        self.tool_schema = schema
        self.name = schema.function.name

    def get_openai_tool_schema(self) -> OpenAIFunctionToolSchema | None:
        """The schema shown to the model; a tool that brings its own overrides this."""
        return getattr(self, "tool_schema", None)

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, ToolResponse]:
        """Begin a trajectory; its id is made up when none is given."""
        return instance_id or uuid4().hex, ToolResponse()

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[ToolResponse, float | None, dict[str, Any] | None]:
        """Run one call: what the model reads, a reward for this step if there is one, and metrics."""
        return ToolResponse(text=f"{self.name} does nothing yet."), 0.0, {}

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float | None:
        """The reward of the whole trajectory, None when there is nothing to judge."""
        return 0.0

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        """End a trajectory and forget its state. An id that is unknown or released already is fine."""


def create_argument(kwargs: dict[str, Any], key: str) -> Any:
    """A value given to ``create``, directly or nested in ``create_kwargs`` as verl 0.7 and later pass it."""
    nested = kwargs.get("create_kwargs")
    if isinstance(nested, dict) and nested.get(key) is not None:
        return nested[key]
    return kwargs.get(key)
