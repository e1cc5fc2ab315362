"""The code interpreter as a function tool of verl (0.9 and later).

Our limiter, retries, guard and texts are behind it. Name this file as
``multi_turn.function_tool_path``, with the sandbox in the environment, or a file of your own that
calls ``register``. verl passes a function neither ``agent_data`` nor a trajectory: where calls must
be counted per trajectory, use the class.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from sfusion_tools.errors import ConfigError, import_extra
from sfusion_tools.sandbox.tool import SandboxFusionTool
from sfusion_tools.tool_registry import initialize_tools_from_config

CONFIG = "SFUSION_TOOL_CONFIG"
URL = "SANDBOX_FUSION_URL"
"""Variables of the environment: the path of a tool config, or else the address of the sandbox."""

Function = Callable[..., Coroutine[Any, Any, tuple[str, None, dict[str, Any]]]]


def register(config: dict[str, Any] | SandboxFusionTool, tool_schema: Any = None) -> Function:
    """Register a function with verl that runs code as a tool of this config does."""
    verl = import_extra(
        "verl.tools.function_tool", extra="ray", needed_by="a function tool (verl 0.9 or later)"
    )
    tool = config
    if not isinstance(tool, SandboxFusionTool):
        tool = SandboxFusionTool(tool, tool_schema)

    async def run(**parameters: Any) -> tuple[str, None, dict[str, Any]]:
        result = await tool.runner.call(parameters)
        return result.text, None, result.metrics()

    shown = tool.tool_schema.model_dump(exclude_unset=True, exclude_none=True)
    registered: Function = verl.function_tool(tool.name, schema=shown)(run)
    return registered


def _of_environment() -> list[SandboxFusionTool]:
    path = os.environ.get(CONFIG)
    if path:
        made = initialize_tools_from_config(Path(path))
        tools = [tool for tool in made if isinstance(tool, SandboxFusionTool)]
        if not tools:
            raise ConfigError(f"{CONFIG}: {path} has no SandboxFusionTool")
        return tools
    url = os.environ.get(URL)
    if url:
        return [SandboxFusionTool({"sandbox_fusion_url": url})]
    raise ConfigError(
        f"set {CONFIG} to the path of a tool config, or {URL} to the address of the sandbox"
    )


if __name__.startswith("_verl_function_tools_"):  # verl executes the file under such a name
    for _tool in _of_environment():
        register(_tool)
