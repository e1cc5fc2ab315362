"""The tool registry under its name in verl 0.7."""

from sfusion_tools.tool_registry import initialize_tools_from_config

__all__ = ["initialize_tools_from_config"]
