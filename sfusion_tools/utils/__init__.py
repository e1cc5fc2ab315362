"""Where verl 0.7 kept its registry; see ``sfusion_tools.tool_registry``."""
