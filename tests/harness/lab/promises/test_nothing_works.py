"""No promise is held by a run in which nothing works; promises that are added later are covered
too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sfusion.harness.core.journal import Journal
from sfusion.harness.lab.promises import PROMISES, check_promises, read_promise
from sfusion.harness.lab.worlds import sim
from sfusion.harness.lab.worlds.worker_rollouts import ScriptedModel
from sfusion_tools.limiter import LimiterCore
from sfusion_tools.sandbox import client as client_module
from sfusion_tools.sandbox.tool import SandboxFusionTool
from sfusion_tools.schemas import ToolResponse
from tests.harness.lab.promises.scenes import PARAMETERS, rollout_scene, scene

SECRET = {"rate_limit": 3, "headers": {"X-Token": "canary-4711"}}
Patch = pytest.MonkeyPatch


def quiet(**changes: Any) -> Any:
    """A small load with all that promises are about: a secret, a disturbance, a program that times
    out."""
    programs = [{"prints": "{call}\n"}, {"seconds": "1h", "early": "begun\n"}]
    given = {
        "tools": {**SECRET, "default_timeout": 2},
        "load": {"calls": 6, "concurrency": 3, "program": programs},
    }
    return scene(**{**given, **changes})


def no_call_is_made(patch: Patch) -> Journal:
    journal = sim.run(quiet())
    journal.events[:] = [event for event in journal.events if event["event"] in ("began", "ended")]
    return journal


def every_call_raises(patch: Patch) -> Journal:
    async def execute(self: Any, *_: Any, **__: Any) -> Any:
        raise RuntimeError("boom")

    patch.setattr(SandboxFusionTool, "execute", execute)
    return sim.run(quiet())


def nothing_is_sent(patch: Patch) -> Journal:
    async def execute(self: Any, *_: Any, **__: Any) -> Any:
        return ToolResponse(text=""), None, {"outcome": "ok", "infrastructure": False}

    patch.setattr(SandboxFusionTool, "execute", execute)
    return sim.run(quiet())


def every_call_hangs(patch: Patch) -> Journal:
    async def run(self: Any, *_: Any, **__: Any) -> Any:
        await asyncio.get_running_loop().create_future()

    patch.setattr(client_module.SandboxClient, "run", run)
    return sim.run(quiet(horizon="100s"))


def no_permit_is_granted(patch: Patch) -> Journal:
    class Barren(LimiterCore):
        def _grant(self, now: float) -> None:
            return

        def next_deadline(self, now: float) -> float:
            return max(super().next_deadline(now), now + 1.0)

    return sim.run(quiet(horizon="1000s"), core=Barren)


def the_engine_never_answers(patch: Patch) -> Journal:
    def reply(self: Any, ask: Any) -> Any:
        raise ValueError("the model is gone")

    patch.setattr(ScriptedModel, "reply", reply)
    return sim.run(rollout_scene())


DEAD_STACKS = (
    no_call_is_made,
    every_call_raises,
    nothing_is_sent,
    every_call_hangs,
    no_permit_is_granted,
    the_engine_never_answers,
)
DEAD_SANDBOXES = {
    "every call ends as a SandboxError": {"faults": [{"what": "sandbox_error"}]},
    "every body is cut": {"faults": [{"what": {"truncate": 0.5}}]},
    "every answer is a 503": {"faults": [{"what": {"status": 503, "retry_after": 1}}]},
    "every request hangs": {"faults": [{"what": "hang"}]},
    "every connection is reset": {"faults": [{"phase": "connect", "what": "reset"}]},
}


def held(journal: Journal, names: Any) -> list[str]:
    promises = [
        read_promise({name: PARAMETERS[name]} if name in PARAMETERS else name) for name in names
    ]
    return [verdict.promise for verdict in check_promises(journal, promises) if verdict.held]


@pytest.mark.parametrize("play", DEAD_STACKS, ids=lambda play: play.__name__)
def test_no_promise_is_held_by_a_stack_that_does_nothing(
    play: Callable[[Patch], Journal], monkeypatch: Patch
) -> None:
    assert held(play(monkeypatch), PROMISES) == []


@pytest.mark.parametrize("sandbox", DEAD_SANDBOXES.values(), ids=DEAD_SANDBOXES)
def test_a_promise_is_held_with_a_dead_sandbox_only_if_it_says_that_it_needs_no_result(
    sandbox: Any,
) -> None:
    journal = sim.run(quiet(sandbox=sandbox))
    names = [name for name, cls in PROMISES.items() if cls.needs == "result"]
    assert {"recovers_within", "throughput_at_least", "partial_output_kept"} <= set(names)
    assert held(journal, names) == []
