"""Names and limits of a scenario's trajectories.

The driver and the engine are imported only to measure, for a scenario with rollouts.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

from sfusion_tools.rollout import RolloutLimits, TruncateSide

from ....fakes.sandbox import FakeSandbox
from ..scenarios.model import Scenario
from .calling import make_tools
from .virtual_time import run_virtually


def names(count: int) -> list[str]:
    """Return the ids of trajectories."""
    width = max(3, len(str(count)))
    return [f"r{number:0{width}d}" for number in range(1, count + 1)]


def bounds_of(scenario: Scenario, *, virtually: bool = True) -> RolloutLimits:
    """Return the limits of a scenario's rollouts as numbers, measured where the file says
    `fits`."""
    part = scenario.rollouts
    if part is None:
        return RolloutLimits()
    given = part.limits.model_dump(exclude_none=True)
    side = TruncateSide(given.pop("tool_response_truncate_side", "middle"))
    texts = {name: value for name, value in given.items() if isinstance(value, str)}
    if texts:
        # Without faults, so that the trajectory ends by itself.
        sound = scenario.model_copy(update={"rollouts": part.model_copy(update={"faults": []})})
        sandbox = FakeSandbox(executor=scenario.sandbox.executor)
        with nullcontext() if virtually else sandbox:  # a tool may block its event loop
            measured = _measure(sandbox, sound, here=virtually)
            needs = run_virtually(measured) if virtually else asyncio.run(measured)
        more = {"fits-1": -1, "fits": 0, "fits+1": 1}
        given |= {name: max(1, needs[name] + more[value]) for name, value in texts.items()}
    return RolloutLimits(**given, tool_response_truncate_side=side)


async def _measure(sandbox: FakeSandbox, scenario: Scenario, *, here: bool) -> dict[str, int]:
    """Return what the first trajectory needs without limits; ``here``: this loop serves the
    sandbox."""
    from .worker_rollouts import Rollouts, ScriptedModel

    async with sandbox if here else nullcontext():
        tool = make_tools(scenario, [sandbox.url], limiter=lambda: None, on_event=_ignore)[0]
        assert scenario.rollouts is not None
        model = ScriptedModel(scenario.rollouts, scenario.seed, tool.name, _ignore)
        rollouts = Rollouts(scenario, model, tool, RolloutLimits(), _ignore)
        request = rollouts.request(names(1)[0])
        await rollouts.run(request)
        close = getattr(tool, "aclose", None)
        if close is not None:
            await close()
    return {
        "max_prompt_len": len(request.prompt_ids),
        "max_response_len": len(request.response_ids),
        "max_model_len": len(request.input_ids),
        "max_tool_response_length": rollouts.tool.longest,
    }


def _ignore(*_: Any, **__: Any) -> None: ...
