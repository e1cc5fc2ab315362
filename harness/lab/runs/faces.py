"""Which service a client of episodes speaks to, and scenarios with another service."""

from __future__ import annotations

from typing import Any

from sfusion_tools.errors import near

from ...errors import BadOption
from ..client import EPISODE, Shape
from ..scenarios.episodes import FACES, Face
from ..scenarios.model import Scenario

_WITHOUT_FILES = ("openenv",)
"""Services whose sandboxes have no files."""


def read_face(text: str | None) -> Face | None:
    """Return the face of an option; raise BadOption for another name."""
    if text is None:
        return None
    for face in FACES:
        if face == text:
            return face  # type: ignore[return-value] # FACES are the values of Face
    raise BadOption(f"--face {text}: no such service; {near(text, FACES)}")


def episode_client(tools: list[dict[str, Any]] | None) -> Shape | None:
    """Return the target that plays episodes, if the given tools are one."""
    if not tools:
        return None
    from ..shapes.as_tool import TARGET_TOOL, target_shape

    if tools[0].get("class_name") != TARGET_TOOL:
        return None
    shape = target_shape(tools[0].get("config") or {})
    return shape if EPISODE in shape.takes else None


def with_face(scenario: Scenario, face: Face) -> Scenario:
    """Return a scenario of episodes with another service, without steps that it does not have."""
    plain = scenario.plain
    if scenario.episodes is None or scenario.sandbox.face == face:
        return scenario
    changes: dict[str, Any] = {"sandbox": {**plain["sandbox"], "face": face}}
    steps = plain["episodes"].get("steps")
    if face in _WITHOUT_FILES and steps:
        commands = [step for step in steps if "exec" in step] or [{"exec": {}}]
        changes["episodes"] = {**plain["episodes"], "steps": commands}
    return scenario.changed(**changes)
