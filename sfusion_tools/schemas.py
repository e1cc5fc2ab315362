"""The OpenAI function-tool models that tools, registry and rollout use.

Keys without a field of their own (``items``, ``default``, nested ``properties``) are kept, so that
a schema survives ``model_dump``, YAML and JSON unchanged. ``ours == theirs`` compares a model with
that of the same name in another package, such as verl's, by content; ``theirs == ours`` is False,
because pydantic compares the classes first.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "OpenAIFunctionCallSchema",
    "OpenAIFunctionParametersSchema",
    "OpenAIFunctionParsedSchema",
    "OpenAIFunctionPropertySchema",
    "OpenAIFunctionSchema",
    "OpenAIFunctionToolCall",
    "OpenAIFunctionToolSchema",
    "ToolResponse",
]


class ComparedByContent(BaseModel):
    """Equals a model of another package that has the same name and content.

    A missing field is the same as None.
    """

    def __eq__(self, other: object) -> bool:
        ours = type(self)
        theirs = type(other)
        if not isinstance(other, BaseModel) or theirs is ours or theirs.__name__ != ours.__name__:
            return super().__eq__(other)
        names = {*ours.model_fields, *type(other).model_fields}
        same = all(getattr(self, name, None) == getattr(other, name, None) for name in names)
        return same and (self.model_extra or {}) == (other.model_extra or {})


class _Open(ComparedByContent):
    model_config = ConfigDict(extra="allow")


class OpenAIFunctionPropertySchema(_Open):
    """One parameter of a function."""

    type: str | list[str]
    description: str | None = None
    enum: list[Any] | None = None


class OpenAIFunctionParametersSchema(_Open):
    """The parameters of a function, a JSON Schema object."""

    type: str
    properties: dict[str, OpenAIFunctionPropertySchema]
    required: list[str] = Field(default_factory=list)


class OpenAIFunctionSchema(_Open):
    """A function as the model sees it."""

    name: str
    description: str
    parameters: OpenAIFunctionParametersSchema = Field(
        default_factory=lambda: OpenAIFunctionParametersSchema(
            type="object", properties={}, required=[]
        )
    )
    strict: bool = False


class OpenAIFunctionToolSchema(_Open):
    """A tool as the model sees it."""

    type: str
    function: OpenAIFunctionSchema


def text_tool(name: str, description: str, parameter: str, about: str) -> OpenAIFunctionToolSchema:
    """Make the schema of a tool with one parameter, a text."""
    parameters = OpenAIFunctionParametersSchema(
        type="object",
        properties={parameter: OpenAIFunctionPropertySchema(type="string", description=about)},
        required=[parameter],
    )
    function = OpenAIFunctionSchema(name=name, description=description, parameters=parameters)
    return OpenAIFunctionToolSchema(type="function", function=function)


class OpenAIFunctionParsedSchema(ComparedByContent):
    """A call from the model's text, with arguments that are still JSON text."""

    name: str
    arguments: str


class OpenAIFunctionCallSchema(ComparedByContent):
    """A call with decoded arguments."""

    name: str
    arguments: dict[str, Any]

    @classmethod
    def from_openai_function_parsed_schema(
        cls, parsed_schema: OpenAIFunctionParsedSchema
    ) -> tuple[OpenAIFunctionCallSchema, bool]:
        """Decode the arguments; the second value is True if they are not a JSON object."""
        try:
            arguments = json.loads(parsed_schema.arguments)
        except (ValueError, RecursionError):
            arguments = None
        failed = not isinstance(arguments, dict)
        return cls(name=parsed_schema.name, arguments={} if failed else arguments), failed


class OpenAIFunctionToolCall(ComparedByContent):
    """A tool call inside an assistant message."""

    id: str
    type: Literal["function"] = "function"
    function: OpenAIFunctionCallSchema


class Message(ComparedByContent):
    """A message with role system, user, assistant or tool."""

    role: str
    content: str | list[Any] | None = ""
    tool_calls: list[OpenAIFunctionToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    """Of a tool message: the tool that was called."""


class ToolResponse(ComparedByContent):
    """What a tool adds to the conversation."""

    text: str | None = None
    image: list[Any] | None = None
    video: list[Any] | None = None

    def is_empty(self) -> bool:
        return not self.text and not self.image and not self.video

    def __str__(self) -> str:
        # Code written for verl's class takes str() of what is not one.
        return self.text or ""

    def is_text_only(self) -> bool:
        return bool(self.text) and not self.image and not self.video
