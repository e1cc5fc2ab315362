"""Creates the tools of a scenario: our own with the world's limiter, or other classes as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sfusion.harness.lab.scenarios.model import Scenario
from sfusion_tools.limiter import Limiter
from sfusion_tools.sandbox.client import Event
from sfusion_tools.sandbox.config import SandboxToolConfig
from sfusion_tools.sandbox.fleet import Fleet
from sfusion_tools.sandbox.guard import SandboxGuard
from sfusion_tools.sandbox.tool import SandboxFusionTool
from sfusion_tools.tool_registry import make_tool

URL_KEYS = ("sandbox_fusion_url", "url", "base_url", "sandbox_url", "endpoint")
"""Config keys that known tools use for the sandbox's address."""


def make_tools(
    scenario: Scenario,
    urls: list[str],
    *,
    limiter: Callable[[], Limiter | None],
    on_event: Event,
    fleet: Fleet | None = None,
) -> list[Any]:
    """Create the tools of one worker; calls go to the first."""
    if scenario.own_config is not None:
        # A scenario's programs are not a model's: the tool offers their languages unless its config says otherwise.
        languages = sorted({part.language for part in scenario.programs if part.language is not None})
        config = {"languages": languages or None, **scenario.own_config}
        config |= {"sandbox_fusion_url": urls if len(urls) > 1 else urls[0], "limiter": "local"}
        settings = SandboxToolConfig.read(config, "tools").guard
        # Several workers of world sim share this process; on a cluster each has a process, and a guard, of its own.
        guard = None if settings is None else SandboxGuard(settings, sorted(urls))
        own = None if guard is None else lambda: guard
        return [SandboxFusionTool(config, limiter=limiter, on_event=on_event, fleet=fleet, guard=own)]
    assert isinstance(scenario.tools, list)
    tools = []
    for number, entry in enumerate(scenario.tools):
        config = dict(entry.get("config") or {})
        given = [key for key in URL_KEYS if key in config] or ["sandbox_fusion_url"]
        # Most tools take a single address that includes the route; a list only if the config has one.
        config |= {key: urls if isinstance(config.get(key), list) else f"{urls[0]}/run_code" for key in given}
        tools.append(make_tool(f"tools[{number}]", {**entry, "config": config}))
    return tools
