"""Measures what a trajectory needs without limits and faults: the base of limits such as `fits-1`."""

from __future__ import annotations

from typing import Any

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.worlds.tool_factory import make_tools
from sfusion.harness.lab.worlds.virtual_time import run_virtually
from sfusion.harness.lab.worlds.worker_rollouts import Rollouts, asks_what_fits, limits_of, measured
from sfusion_tools.rollout import RolloutLimits


def bounds_of(scenario: Scenario) -> RolloutLimits:
    """Return the limits of a scenario's rollouts as numbers, measured in virtual time where the file says `fits`."""
    part = scenario.rollouts
    if part is None:
        return RolloutLimits()
    return limits_of(part, run_virtually(_measure(scenario)) if asks_what_fits(part) else {})


async def _measure(scenario: Scenario) -> dict[str, int]:
    part = scenario.rollouts
    assert part is not None
    async with FakeSandbox(executor=scenario.sandbox.executor) as sandbox:
        tool = make_tools(scenario, [sandbox.url], limiter=lambda: None, on_event=_ignore)[0]
        # Without faults, so that the trajectory ends by itself.
        sound = part.model_copy(update={"faults": []})
        rollouts = Rollouts(
            sound, tool, "", seed=scenario.seed, limits=RolloutLimits(), note=_ignore, timeout=scenario.default_timeout
        )
        needs = await measured(rollouts)
        close = getattr(tool, "aclose", None)
        if close is not None:
            await close()
    return needs


def _ignore(*_: Any, **__: Any) -> None: ...
