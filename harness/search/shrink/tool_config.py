"""The tool config of a peer, as ``sfusion run --tools`` reads it from a file."""

from __future__ import annotations

from typing import Any

from sfusion.harness.search.shrink.reference_tool import DEFAULTS, GoodTool

SCHEMA: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "code_interpreter",
        "description": "Runs code and returns what it prints.",
        "parameters": {
            "type": "object",
            "properties": {"code": {"type": "string", "description": "the program"}},
            "required": ["code"],
        },
    },
}


def tool_config(tool: type[GoodTool], *, states_outcomes: bool = True) -> list[dict[str, Any]]:
    """Return the entries of a tool config with one tool."""
    config = {**DEFAULTS, "sandbox_fusion_url": ["http://sandbox.invalid"], "states_outcomes": states_outcomes}
    return [{"class_name": f"{tool.__module__}.{tool.__qualname__}", "config": config, "tool_schema": SCHEMA}]
