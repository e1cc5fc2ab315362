"""The calls of a load: which program each runs, the tools that are called, and how a rollout calls
them.

The program is a function of the seed and the call's id, independent of order and caller. Tools are
our own with the world's limiter, or other classes with verl's interface as they are.
"""

from __future__ import annotations

import asyncio
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sfusion_tools.errors import GuardTripped
from sfusion_tools.limiter import Limiter
from sfusion_tools.sandbox.client import OnEvent
from sfusion_tools.sandbox.config import SandboxToolConfig
from sfusion_tools.sandbox.fleet import Fleet
from sfusion_tools.sandbox.guard import SandboxGuard
from sfusion_tools.sandbox.text import plain
from sfusion_tools.sandbox.tool import SandboxFusionTool
from sfusion_tools.tool_registry import make_tool

from ....fakes.faults import Distribution
from ....fakes.faults.chance import drawer, uniform
from ...core.journal import SHOWN, Event
from ..facts.truth import ProgramTruth
from ..programs import packed
from ..scenarios.model import Scenario
from ..scenarios.parts import LoadPart
from ..scenarios.program import PreparedCall, ProgramPart
from ..verl_tools import URL_KEYS, AgentData, stated_in


class Workload:
    """The calls of a load, numbered from 1. ``scale`` shortens all durations; the draws stay the
    same."""

    def __init__(self, scenario: Scenario, scale: float = 1.0) -> None:
        # Nobody asks for the calls of a scenario without a load.
        self.load = scenario.load or LoadPart()
        self.seed = scenario.seed
        self.scale = scale
        self._default_timeout = scenario.default_timeout
        self._fixed = {part.call: part for part in self.load.program if part.call is not None}
        self._drawn = [part for part in self.load.program if part.call is None]
        self._total = sum(part.share for part in self._drawn)

    def prepare(self, number: int) -> PreparedCall:
        """Return a call with its program.

        A program meant to exceed its timeout keeps its length, because timeouts are not scaled.
        """
        call = self.load.call_id(number)
        part = self._part(call)
        whole = part.prepare(call, self.seed)
        if self.scale == 1.0 or whole.seconds > (part.timeout or self._default_timeout):
            return whole
        shorter = Distribution(numbers=(whole.seconds * self.scale,))
        return part.model_copy(update={"seconds": shorter}).prepare(call, self.seed)

    def called(self, prepared: PreparedCall, worker: str) -> Event:
        """Return the keys of the event ``called``."""
        intent = prepared.intent(self._default_timeout)
        return {"call": prepared.call, "worker": worker, "intent": intent, "allowed": None}

    def think(self, number: int) -> float:
        """Return how long the caller pauses before this call."""
        draw = drawer(self.seed, "think", self.load.call_id(number))
        return self.load.think.sample(draw) * self.scale

    def cancelled_after(self, number: int) -> float | None:
        """Return when the caller gives up on this call; None if it waits until the end."""
        cancel = self.load.cancel
        call = self.load.call_id(number)
        if cancel is None or uniform(self.seed, "cancel", call) >= cancel.share:
            return None
        return cancel.after.sample(drawer(self.seed, "cancel", call)) * self.scale

    def _part(self, call: str) -> ProgramPart:
        if call in self._fixed:
            return self._fixed[call]
        left = uniform(self.seed, "program", call) * self._total
        for part in self._drawn:
            left -= part.share
            if left < 0:
                return part
        return self._drawn[-1]


def make_tools(
    scenario: Scenario,
    urls: list[str],
    *,
    limiter: Callable[[], Limiter | None],
    on_event: OnEvent,
    fleet: Fleet | None = None,
) -> list[Any]:
    """Create the tools of one worker; calls go to the first."""
    if scenario.own_config is not None:
        config = _own_config(scenario, scenario.own_config, urls)
        guard = _own_guard(config, urls)
        tool = SandboxFusionTool(
            config, limiter=limiter, on_event=on_event, fleet=fleet, guard=guard
        )
        return [tool]
    assert isinstance(scenario.tools, list)
    tools = []
    for number, entry in enumerate(scenario.tools):
        config = _with_addresses(entry.get("config") or {}, urls)
        tools.append(make_tool(f"tools[{number}]", {**entry, "config": config}))
    return tools


def _own_config(scenario: Scenario, stated: dict[str, Any], urls: list[str]) -> dict[str, Any]:
    """Return the config of our own tool."""
    # A scenario's programs are not a model's: the tool offers their languages unless its config
    # says otherwise.
    languages = {part.language for part in scenario.programs if part.language is not None}
    return {
        "languages": sorted(languages) or None,
        **stated,
        "sandbox_fusion_url": urls if len(urls) > 1 else urls[0],
        "limiter": "local",
    }


def _own_guard(config: dict[str, Any], urls: list[str]) -> Callable[[], SandboxGuard] | None:
    """Return how to get the guard of one worker; None if it has none.

    Several workers of world sim share this process; on a cluster each has a process, and a guard,
    of its own.
    """
    settings = SandboxToolConfig.read(config, "tools").guard
    if settings is None:
        return None
    guard = SandboxGuard(settings, sorted(urls))
    return lambda: guard


def _with_addresses(config: dict[str, Any], urls: list[str]) -> dict[str, Any]:
    """Return the config of another tool with the addresses of our sandboxes.

    Most tools take a single address that includes the route; a list only if the config has one.
    """
    keys = [key for key in URL_KEYS if key in config] or ["sandbox_fusion_url"]
    addresses: dict[str, Any] = {}
    for key in keys:
        addresses[key] = urls if isinstance(config.get(key), list) else f"{urls[0]}/run_code"
    return {**config, **addresses}


_NOT_THE_TOOLS = (
    str(Path(__file__).parent),
    *(sysconfig.get_path(name) for name in ("purelib", "platlib")),
    str(Path(asyncio.__file__).parents[1]),
)


async def call_tool(tool: Any, prepared: PreparedCall) -> dict[str, Any]:
    """Call create, execute, calc_reward and release; return the keys of the journal's event
    ``returned``.

    Old and new return shapes are accepted: ``execute`` may return a plain string (verl up to 0.5),
    and ``create`` an id alone. What a tool does not report is None.
    """
    truth = prepared.prints.strip()
    instance: Any = None
    # Whatever a tool raises, the model or the trainer would see.
    try:
        try:
            made = await tool.create(
                prepared.call, ground_truth=truth, create_kwargs={"ground_truth": truth}
            )
            instance = made[0] if isinstance(made, tuple) else made
            agent = AgentData(request_id=prepared.call, extra_fields={"left_by": "another tool"})
            answer = await tool.execute(
                instance, prepared.arguments, call_id=prepared.call, agent_data=agent
            )
            facts = read_result(answer, prepared.truth)
            stated = stated_in(agent.extra_fields)
            if stated is not None:
                is_kept = "left_by" in agent.extra_fields
                facts["extras"] = stated if is_kept else "nothing else any more"
            if _scores(type(tool)):
                facts["reward"] = _number(await tool.calc_reward(instance))
        except (Exception, GuardTripped) as error:
            facts = raised_facts(error)
        finally:
            if instance is not None:
                await tool.release(instance)
    except Exception as error:
        facts = raised_facts(error)
    return facts


def _scores(kind: type) -> bool:
    """Does a class reward calls itself?

    What verl's base class and ours return says nothing, and verl never asks.
    """
    method = getattr(kind, "calc_reward", None)
    if method is None:
        return False
    module = str(getattr(method, "__module__", ""))
    return not module.endswith("tools.base_tool")


def raised_facts(error: BaseException) -> dict[str, Any]:
    """Return the keys of ``returned`` for a tool that raised, with the line and the function of the
    tool's own code."""
    frames = traceback.extract_tb(error.__traceback__)
    # Not the harness that called it, nor a library that it called.
    own = [frame for frame in frames if not frame.filename.startswith(_NOT_THE_TOOLS)]
    text = plain(f"{type(error).__name__}: {error}".rstrip(": "))
    facts = {"raised": type(error).__name__, "outcome": None, **_shown(text)}
    if own:
        last = own[-1]
        file = Path(last.filename).name
        facts["raised_at"] = f"{file}:{last.lineno}"
        facts["raised_in"] = f"{file}:{last.name}"
    return facts


_REPORTED = {"waited": "permit_wait_s", "attempts": "attempts", "exit": "return_code"}
"""Numbers of the event ``returned``, and what a tool's metrics call them."""


def read_result(answer: Any, program: ProgramTruth | None = None) -> dict[str, Any]:
    """Return outcome, text and timing from what ``execute`` returned. ``program`` is what was run,
    if that is known."""
    response = answer
    reward = None
    metrics = None
    if isinstance(answer, tuple) and len(answer) == 3:
        response, reward, metrics = answer
    text = response if isinstance(response, str) else getattr(response, "text", None)
    reported = metrics if isinstance(metrics, dict) else {}
    facts: dict[str, Any] = {"outcome": reported.get("outcome")}
    if isinstance(reported.get("problem"), str):
        facts["problem"] = reported["problem"]
    facts |= _shown(text, program)
    step_reward = _number(reward)
    if step_reward is not None:
        facts["step_reward"] = step_reward
    if "infrastructure" in reported:
        facts["infrastructure"] = reported["infrastructure"]
    for name, key in _REPORTED.items():
        number = reported.get(key)
        if isinstance(number, int | float):
            facts[name] = number
    return facts


def _shown(text: str | None, program: ProgramTruth | None = None) -> dict[str, Any]:
    whole = text or ""
    facts: dict[str, Any] = {"text": whole, "chars": len(whole)}
    if len(whole) > SHOWN and program is not None:
        # Of a long text the journal keeps the beginning, and all of it by what the program printed.
        facts["pieces"] = packed(whole, program)
    return facts


def _number(reward: Any) -> float | None:
    return float(reward) if isinstance(reward, int | float) else None
