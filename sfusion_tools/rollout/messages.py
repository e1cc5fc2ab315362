"""The messages of a conversation."""

from __future__ import annotations

from typing import Any

from sfusion_tools.schemas import ComparedByContent, OpenAIFunctionToolCall


class Message(ComparedByContent):
    """A message with role system, user, assistant or tool."""

    role: str
    content: str | list[Any] | None = ""
    tool_calls: list[OpenAIFunctionToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    """Of a tool message: the tool that was called."""
