"""What tools with verl's interface expect of their callers, and leave for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sfusion_tools.outcome import OUTCOMES

URL_KEYS = ("sandbox_fusion_url", "url", "base_url", "sandbox_url", "endpoint")
"""Config keys that known tools use for the sandbox's address."""


@dataclass
class AgentData:
    """What verl's agent loop passes to a tool beside the arguments, as far as tools use it."""

    request_id: str
    messages: list[dict[str, Any]] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    tools_kwargs: dict[str, Any] = field(default_factory=dict)
    extra_fields: dict[str, Any] = field(default_factory=dict)


def stated_in(extra_fields: Any) -> str | None:
    """Return the last outcome that a tool left where verl's trainer finds it; None if there is
    none."""
    if isinstance(extra_fields, str):
        return extra_fields if extra_fields in OUTCOMES else None
    if isinstance(extra_fields, dict):
        extra_fields = list(extra_fields.values())
    elif not isinstance(extra_fields, list | tuple):
        return None
    for value in reversed(extra_fields):
        found = stated_in(value)
        if found is not None:
            return found
    return None
