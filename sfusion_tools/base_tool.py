"""The interface of every tool, the same as verl's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar
from uuid import uuid4

from sfusion_tools.schemas import OpenAIFunctionToolSchema, ToolResponse

S = TypeVar("S")


class BaseTool:
    """A tool the model may call.

    One object serves many trajectories, identified by ``instance_id``. create -> execute (any
    number of times) -> calc_reward -> release.
    """

    def __init__(
        self, config: dict[str, Any], tool_schema: OpenAIFunctionToolSchema | None = None
    ) -> None:
        schema = tool_schema or self.get_openai_tool_schema()
        if schema is None:
            raise ValueError(
                f"{type(self).__name__} got no tool_schema and has no default one: "
                "pass one, or override get_openai_tool_schema()"
            )
        self.config = config
        self.tool_schema = schema
        self.name = schema.function.name

    def get_openai_tool_schema(self) -> OpenAIFunctionToolSchema | None:
        """Return the schema shown to the model; override this to give a tool a default schema."""
        return getattr(self, "tool_schema", None)

    async def create(
        self, instance_id: str | None = None, **kwargs: Any
    ) -> tuple[str, ToolResponse]:
        """Begin a trajectory; return its id, a new one if none is given."""
        return instance_id or uuid4().hex, ToolResponse()

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[ToolResponse, float | None, dict[str, Any] | None]:
        """Run one call.

        Return what the model reads, the reward of this step if there is one, and metrics.
        """
        return ToolResponse(text=f"{self.name} does nothing yet."), 0.0, {}

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float | list[float] | None:
        """Return the reward of the whole trajectory; None or an empty list if it has none."""
        return 0.0

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        """End a trajectory and drop its state; an unknown or already released id is accepted."""


class TrajectoryTool(BaseTool, Generic[S]):
    """A tool with a default schema and state for each trajectory.

    The state begins with the ground truth.
    """

    default_schema: ClassVar[OpenAIFunctionToolSchema]

    def __init__(
        self,
        config: dict[str, Any],
        tool_schema: OpenAIFunctionToolSchema | None,
        begin: Callable[[str | None], S],
    ) -> None:
        super().__init__(config, tool_schema)
        self._begin = begin
        self._instance_dict: dict[str, S] = {}

    def get_openai_tool_schema(self) -> OpenAIFunctionToolSchema:
        return super().get_openai_tool_schema() or self.default_schema

    async def create(
        self, instance_id: str | None = None, **kwargs: Any
    ) -> tuple[str, ToolResponse]:
        """Begin a trajectory.

        ``ground_truth`` is given directly or, as verl 0.7 does, in ``create_kwargs``.
        """
        instance_id = instance_id or uuid4().hex
        nested = kwargs.get("create_kwargs")
        truth = nested.get("ground_truth") if isinstance(nested, dict) else None
        if truth is None:
            truth = kwargs.get("ground_truth")
        self._instance_dict[instance_id] = self._begin(None if truth is None else str(truth))
        return instance_id, ToolResponse()

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        self._instance_dict.pop(instance_id, None)
