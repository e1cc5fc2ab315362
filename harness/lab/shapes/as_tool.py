"""A target of any shape as a tool class, so that scenarios play it: ``--tools my_client:run``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from sfusion_tools.base_tool import BaseTool
from sfusion_tools.schemas import OpenAIFunctionToolSchema, ToolResponse
from sfusion_tools.tool_registry import read_entries

from ...errors import BadOption
from ..client import Settings, Shape, TrialAsk, TrialClient
from .shape import shape_of, tool_shape
from .tool import SCHEMA

_DEFAULTS: dict[str, Any] = {"rate_limit": 10, "default_timeout": 30.0, "headers": {}}


class TargetRaised(Exception):
    """What a target raised."""


TARGET_KEYS = ("target", "command", "env", "attribute", "tool")
"""The keys of a config that say what is called; the others are settings."""


def tools_of(
    text: str, *, env: str | None = None, attribute: str | None = None
) -> tuple[list[dict[str, Any]], str]:
    """Return the entries of a tool config file, or one for a target, and why virtual time cannot
    play it. ``env`` and ``attribute`` name where a target reads the address."""
    named = {"env": env, "attribute": attribute}
    holds_address = {key: value for key, value in named.items() if value}
    if Path(text).exists() or ":" not in text:
        if holds_address:
            raise BadOption(
                f"--{next(iter(holds_address))} says where a function or class finds the address; "
                f"--tools {text} is a tool config, whose config has it as `sandbox_fusion_url`"
            )
        return read_entries(Path(text)), ""
    shape = target_shape({"target": text, **holds_address})
    config = {
        "target": text,
        **holds_address,
        **{key: value for key, value in _DEFAULTS.items() if key in shape.takes},
    }
    return [{"class_name": TARGET_TOOL, "config": config}], shape.wall


@lru_cache
def _shape(text: str) -> Shape:
    return shape_of(text)


def target_shape(config: Mapping[str, Any]) -> Shape:
    """Return the shape of what a config names: a target, a command or a tool."""
    if "tool" in config:
        return tool_shape(str(config["tool"].get("class_name")), config["tool"])
    if set(TARGET_KEYS) & set(config) == {"target"}:
        return _shape(str(config["target"]))
    return shape_of(
        config.get("target"),
        env=config.get("env"),
        attribute=config.get("attribute"),
        command=tuple(config.get("command") or ()),
    )


class TargetTool(BaseTool):
    """Makes a call of a model with the function, class or reward function that the config names as
    ``target``."""

    def __init__(
        self, config: dict[str, Any], tool_schema: OpenAIFunctionToolSchema | None = None
    ) -> None:
        super().__init__(config, tool_schema or OpenAIFunctionToolSchema.model_validate(SCHEMA))
        self._shape = target_shape(config)
        self._client: TrialClient | None = None
        self._truths: dict[str, str] = {}

    async def create(self, instance_id: str | None = None, **more: Any) -> tuple[str, ToolResponse]:
        name = instance_id or ""
        self._truths[name] = str(more.get("ground_truth") or "")
        return name, ToolResponse()

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **more: Any
    ) -> tuple[ToolResponse, float | None, dict[str, Any]]:
        if self._client is None:
            settings = {key: self.config[key] for key in _DEFAULTS if key in self.config}
            url = str(self.config["sandbox_fusion_url"]).removesuffix("/run_code")
            client = self._shape.make()
            await client.begin(Settings((url,), **settings))
            self._client = client
        known = {
            key: parameters[key]
            for key in ("code", "language", "stdin", "timeout")
            if key in parameters
        }
        told = await self._client.call(
            TrialAsk(instance_id, truth=self._truths.get(instance_id, ""), **known)
        )
        if told.raised is not None:
            raise TargetRaised(told.raised)
        return ToolResponse(text=told.text), told.reward, dict(told.fields)

    async def calc_reward(self, instance_id: str, **more: Any) -> None:
        """Score nothing: a target's reward is that of its call."""

    async def release(self, instance_id: str, **more: Any) -> None:
        self._truths.pop(instance_id, None)

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.end()


TARGET_TOOL = f"{TargetTool.__module__}.{TargetTool.__name__}"
"""The class of a tool config's entry that names a target."""
