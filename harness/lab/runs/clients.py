"""Which client makes the single calls of a scenario, and in which world."""

from __future__ import annotations

from typing import Any

from ...core.journal import Journal
from ...errors import WorldError
from ..client import Shape
from ..scenarios.model import Scenario, World
from ..scenarios.tools import OWN_CLASSES
from ..shapes.as_tool import TARGET_KEYS, TARGET_TOOL, target_shape
from ..shapes.shape import tool_shape


def client_tools(tool: dict[str, Any], scenario: Scenario) -> list[dict[str, Any]]:
    """Return the tools of a scenario whose single calls this tool, or target, makes: with all
    settings of the scenario, of which a client gets those that it takes."""
    config = tool.get("config") or {}
    if tool.get("class_name") == TARGET_TOOL:
        target = {key: config[key] for key in TARGET_KEYS if key in config}
    else:
        target = {"tool": tool}
    return [{"class_name": TARGET_TOOL, "config": {**target, **scenario.stated_config}}]


def client_of(scenario: Scenario) -> Shape:
    """Return the client that the tools of a scenario name."""
    if isinstance(scenario.tools, dict):
        return _own_client(tuple(sorted((scenario.own_config or {}).items(), key=str)))
    entry = scenario.tools[0]
    if entry.get("class_name") != TARGET_TOOL:
        return tool_shape(str(entry.get("class_name")), entry)
    return target_shape(entry.get("config") or {})


def _own_client(config: tuple[tuple[str, Any], ...]) -> Shape:
    return tool_shape("SandboxFusionTool", {"class_name": OWN_CLASSES[0], "config": dict(config)})


def play_single_calls(scenario: Scenario, world: World) -> Journal:
    """Play the single calls of a scenario in a world with the client that its tools name."""
    shape = client_of(scenario)
    if world == "sim":
        from ..worlds.clients import run_in_sim

        if shape.wall:
            raise WorldError(f"{shape.name} cannot be played in world sim: {shape.wall}")
        return run_in_sim(scenario, shape.make)
    if world == "wall":
        from ..worlds.clients_wall import run_on_wall

        return run_on_wall(scenario, shape)
    raise WorldError("single calls (`load.each`) need world sim or wall")
