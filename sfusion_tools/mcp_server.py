"""The code interpreter as a server of the Model Context Protocol, for any agent that speaks it."""

from __future__ import annotations

from typing import Any

from sfusion_tools._version import __version__
from sfusion_tools.errors import GuardTripped, import_extra
from sfusion_tools.sandbox.tool import SandboxFusionTool

FACTS = (
    "outcome",
    "infrastructure",
    "attempts",
    "possible_executions",
    "return_code",
    "execution_s",
    "problem",
)
"""The metrics of a call that a client gets beside the text."""


def code_server(tool: SandboxFusionTool) -> Any:
    """Return a server (``mcp.server.Server``) whose only tool runs code as this one does.

    A failure of the sandbox is an answer with ``isError``, a text that cannot be mistaken for
    output and the outcome in ``structuredContent``; a program that fails is an answer like any
    other.
    """
    lowlevel = import_extra("mcp.server.lowlevel", extra="mcp", needed_by="serving MCP")
    types = import_extra("mcp.types", extra="mcp", needed_by="serving MCP")
    function = tool.tool_schema.function
    shown = types.Tool(
        name=tool.name,
        description=function.description,
        input_schema=function.parameters.model_dump(exclude_none=True, exclude_unset=True),
    )

    async def list_tools(*_: Any) -> Any:
        return types.ListToolsResult(tools=[shown])

    async def call_tool(_: Any, request: Any) -> Any:
        if request.name != tool.name:
            wrong = {"outcome": "bad_arguments", "infrastructure": False}
            return answer(
                f"[{request.name}] There is no such tool here, only {tool.name!r}.",
                wrong,
                is_error=True,
            )
        try:
            result = await tool.runner.call(request.arguments or {})
        except GuardTripped as stopped:
            return answer(
                f"[{tool.name}] {stopped}",
                {"outcome": "cancelled", "infrastructure": True},
                is_error=True,
            )
        metrics = result.metrics()
        facts = {name: metrics[name] for name in FACTS}
        return answer(result.text, facts, is_error=not result.outcome.is_from_program)

    def answer(text: str, facts: dict[str, Any], *, is_error: bool) -> Any:
        content = [types.TextContent(type="text", text=text)]
        return types.CallToolResult(content=content, structured_content=facts, is_error=is_error)

    return lowlevel.Server(
        "sfusion", version=__version__, on_list_tools=list_tools, on_call_tool=call_tool
    )
