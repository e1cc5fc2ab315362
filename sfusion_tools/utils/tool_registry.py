"""The registry at the place where verl 0.7 kept its own."""

from sfusion_tools.tool_registry import initialize_tools_from_config

__all__ = ["initialize_tools_from_config"]
