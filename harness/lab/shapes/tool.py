"""A tool class with verl's interface as a client: ``create``, ``execute``, ``calc_reward``,
``release``."""

from __future__ import annotations

import copy
import inspect
import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sfusion_tools.runtime import runtime
from sfusion_tools.sandbox.program import RUNNABLE
from sfusion_tools.tool_registry import make_tool

from ..client import UNSET, Returned, Settings, TrialAsk
from ..facts.sent import encoded_files
from ..scenarios.tools import is_own
from ..verl_tools import URL_KEYS, AgentData, stated_in
from .parameters import NAMES, ROUTE
from .results import raised, returned_from

CONFIG = {
    "rate_limit": "rate_limit",
    "default_timeout": "default_timeout",
    "compile_timeout": "compile_timeout",
    "memory": "memory_limit_mb",
    "headers": "headers",
    "deadline": "call_deadline",
}
"""The config key for each setting."""
_NUMBERS = itertools.count(1)
_NEEDED = ("create", "execute", "release")
_METHODS = ("create", "execute", "calc_reward", "release")
SCHEMA = {
    "type": "function",
    "function": {
        "name": "code_interpreter",
        "description": "Run a program and return its output.",
        "parameters": {
            "type": "object",
            "properties": {"code": {"type": "string", "description": "The program."}},
            "required": ["code"],
        },
    },
}
"""The schema of a tool that is given without one."""


class _ReadConfig(dict[str, Any]):
    """A config that knows which of its keys were asked for, also in vain."""

    def __init__(self, values: Mapping[str, Any], asked: set[str]) -> None:
        super().__init__(values)
        self._asked = asked

    def get(self, key: str, default: Any = None) -> Any:
        self._asked.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self._asked.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._asked.add(str(key))
        return super().__contains__(key)


def is_tool(target: Any) -> bool:
    return all(callable(getattr(target, name, None)) for name in _NEEDED)


class ToolClient:
    """One tool of a tool config, made anew for each scene."""

    own_address = True
    learned = ("route", "takes", "asked")
    route = ROUTE

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self._entry = dict(entry)
        self._tool: Any = None
        self._own = is_own(self._entry)
        self.asked: set[str] = set(self._entry.get("config") or {})
        self._instances: dict[str, Any] = {}
        self._names: dict[str, str] = {"code": "code"}
        self.takes = frozenset({"code", "text", "arguments", "instances", "concurrent", "cancel"})

    def learn(self, sent: Mapping[str, Any], asked: Mapping[str, Any], returned: Returned) -> None:
        """Note which settings and arguments it takes and what it returns, as a first call
        showed."""
        settings = {name for name, key in CONFIG.items() if key in self.asked or self._own}
        if "language" not in sent:
            self._names.pop("language", None)
        config = self._entry.get("config") or {}
        several = self._own or any(isinstance(config.get(key), list) for key in URL_KEYS)
        shown = ({"reward"} if returned.reward is not None else set()) | (
            {"urls"} if several else set()
        )
        self.takes = self.takes | settings | (set(self._names) - {"solution"}) | shown

    async def begin(self, settings: Settings) -> None:
        config = dict(self._entry.get("config") or {})
        given = [key for key in URL_KEYS if key in config] or ["sandbox_fusion_url"]
        addresses = [url + self.route for url in settings.urls]
        several = len(addresses) > 1 and self._own
        config |= {
            key: addresses if several or isinstance(config.get(key), list) else addresses[0]
            for key in given
        }
        values = {**vars(settings), "memory": settings.memory_limit_mb}
        config |= {
            key: values[name]
            for name, key in CONFIG.items()
            if values[name] and self._may_have(key, config)
        }
        if self._own:
            # Calls of other scenes must not count against the limit of this one.
            config |= {
                "limiter": "local",
                "limiter_name": f"trial-{next(_NUMBERS)}",
                "languages": sorted(RUNNABLE),
            }
        entry = {"tool_schema": SCHEMA, **self._entry} if not self._own else dict(self._entry)
        self._tool = make_tool("tools[0]", {**entry, "config": _ReadConfig(config, self.asked)})
        self._has_reward = hasattr(self._tool, "calc_reward")
        self._names = self._argument_names()

    def _may_have(self, key: str, config: Mapping[str, Any]) -> bool:
        return (
            self._own
            or key in config
            or key in self.asked
            or key in ("rate_limit", "default_timeout")
        )

    def _argument_names(self) -> dict[str, str]:
        """Return the name of the argument for each meaning, as the tool's schema has them."""
        schema = getattr(self._tool, "tool_schema", None)
        properties = (
            getattr(
                getattr(getattr(schema, "function", None), "parameters", None), "properties", None
            )
            or {}
        )
        names = {}
        for meaning in ("code", "language", "stdin", "files", "timeout"):
            found = [name for name in properties if name.lower() in NAMES[meaning]]
            if found:
                names[meaning] = found[0]
        offered = {"language": "language", "timeout": "timeout"} if self._own else {}
        return {"code": "code", **offered, **names}

    def _arguments(self, ask: TrialAsk) -> Any:
        if ask.arguments is not UNSET:
            return ask.arguments
        values = {
            "code": ask.code,
            "language": ask.language if ask.language != "python" else None,
            "stdin": ask.stdin,
            "files": encoded_files(ask) or None,
            "timeout": ask.timeout,
        }
        return {
            self._names[key]: value
            for key, value in values.items()
            if value is not None and key in self._names
        }

    async def call(self, ask: TrialAsk) -> Returned:
        arguments = self._arguments(ask)
        given = copy.deepcopy(arguments)
        name = ask.instance or ask.call
        agent = AgentData(request_id=name, extra_fields={"left_by": "another tool"})
        try:
            if name not in self._instances:
                made = await self._tool.create(
                    name, ground_truth=ask.truth, create_kwargs={"ground_truth": ask.truth}
                )
                self._instances[name] = made[0] if isinstance(made, tuple) else made
            instance = self._instances[name]
            try:
                answer: Any = "", None, {}
                if ask.executes:
                    answer = await self._tool.execute(
                        instance, arguments, call_id=ask.call, agent_data=agent
                    )
                if ask.last and self._has_reward:
                    reward = await self._tool.calc_reward(instance)
                else:
                    reward = None
                returned = _returned(answer, reward, agent)
            finally:
                if ask.last:
                    del self._instances[name]
                    await self._tool.release(instance)
        except Exception as error:
            returned = raised(error)
        changed = "" if arguments == given else f"{given!r:.200} became {arguments!r:.200}"
        if agent.extra_fields.get("left_by") != "another tool":
            changed = "what another tool had left in extra_fields is gone"
        return replace(returned, altered=changed)

    async def end(self) -> None:
        tool = self._tool
        self._tool = None
        for instance in self._instances.values():
            await tool.release(instance)
        self._instances = {}
        close = getattr(tool, "aclose", None)
        if close is not None:
            result = close()
            if inspect.isawaitable(result):
                await result
        if self._own:
            await runtime.scope().aclose()  # the limiter's client, which tools of one loop share

    def inside(self) -> Any:
        return self._tool


def _returned(answer: Any, reward: Any, agent: AgentData) -> Returned:
    """Read what ``execute`` returned, of any version of verl, and what it left for the trainer."""
    returned = returned_from(answer)
    fields = returned.fields if isinstance(returned.fields, dict) else dict(returned.fields)
    if returned.reward is not None:
        fields["step_reward"] = returned.reward
    if (stated := stated_in(agent.extra_fields)) is not None:
        fields["stated"] = stated
    return Returned(
        returned.text, fields, float(reward) if isinstance(reward, int | float) else None
    )


def missing_methods(target: type) -> list[str]:
    """Return what a class that looks like a tool of verl's lacks."""
    if not callable(getattr(target, "execute", None)) or not callable(
        getattr(target, "create", None)
    ):
        return []
    return [name for name in _METHODS if not callable(getattr(target, name, None))]
