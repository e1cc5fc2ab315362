"""Tool configs like those of verl's users."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml

OURS = "sfusion_tools.sandbox_fusion_tools.SandboxFusionTool"
THEIRS = "verl.tools.sandbox_fusion_tools.SandboxFusionTool"

SCHEMA = {
    "type": "function",
    "function": {
        "name": "code_interpreter",
        "description": "A tool for executing code.",
        "parameters": {
            "type": "object",
            "properties": {"code": {"type": "string", "description": "The code to execute."}},
            "required": ["code"],
        },
    },
}


def verl_config(url: str, **config: Any) -> dict[str, Any]:
    """Return a config with every key of verl's own tool."""
    return {
        "type": "native",
        "sandbox_fusion_url": url,
        "num_workers": 10,
        "enable_global_rate_limit": True,
        "rate_limit": 10,
        "default_timeout": 30,
        "default_language": "python",
        "memory_limit_mb": 1024,
        **config,
    }


def quick(url: str, **config: Any) -> dict[str, Any]:
    """Return a config with its own limiter and almost no pause between attempts."""
    return verl_config(
        url,
        **{
            "limiter_name": uuid4().hex,
            "backoff_base": 0.001,
            "backoff_cap": 0.002,
            "transport_margin": 5,
            **config,
        },
    )


def write_tools(
    path: Path, config: dict[str, Any], class_name: str = OURS, schema: Any = SCHEMA
) -> Path:
    """Write a tool config file with one tool."""
    entry = {"class_name": class_name, "config": config} | (
        {"tool_schema": schema} if schema else {}
    )
    path.write_text(yaml.safe_dump({"tools": [entry]}))
    return path
