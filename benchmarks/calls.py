"""One tool call, against plain aiohttp under a semaphore (the floor), verl's original design and
verl itself."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import aiohttp

from benchmarks.benchmark import Contest, in_turn, repeat
from benchmarks.figures import OURS
from benchmarks.ground import Ground
from sfusion_tools.sandbox.transport_choice import SWITCH
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool

Call = Callable[[], Awaitable[object]]

FLOOR = "plain aiohttp"
DESIGN = "original design"
VERL = "verl 0.7.1"
PUBLIC = "ours, public transport"
"""The same tool with SFUSION_TRANSPORT=public."""
CODE = "print(1 + 2)"
_names = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Calls:
    """How the calls of a benchmark are made."""

    pause: float = 0.0
    """Seconds that the sandbox takes."""
    callers: int = 256
    limit: int = 100
    calls: int = 8192
    """Calls of one round, of the floor and of ours, which take seconds; the slow baselines make a
    few hundred."""
    ray: bool = True
    """Use the limiter of a Ray cluster, as training does, and the baselines that need Ray."""
    alone: bool = False
    """Measure seconds per call of a single caller, instead of calls per second."""

    @contextmanager
    def open(self, ground: Ground) -> Iterator[Contest]:
        url = f"{ground.url('bare')}/run_code?pause={self.pause}"
        missing: dict[str, str] = {}
        with ExitStack() as stack:
            runner = stack.enter_context(asyncio.Runner())
            no_ray = ground.no_ray() if self.ray else "not asked for"
            calls: dict[str, tuple[Call, int]] = {}
            name = f"bench-{next(_names)}"
            if not no_ray:
                from sfusion_tools.limiter.ray_limiter import remove

                stack.callback(remove, name)
            config = {
                "sandbox_fusion_url": url.replace("/run_code", ""),
                "rate_limit": self.limit,
                "limiter": "local" if no_ray else "ray",
                "limiter_name": name,
            }
            tool = SandboxFusionTool(config)
            with mock.patch.dict(os.environ, {SWITCH: "public"}):
                public = SandboxFusionTool(config)
            stack.callback(lambda: runner.run(tool.aclose()))
            stack.callback(lambda: runner.run(public.aclose()))
            session = runner.run(_session())
            stack.callback(lambda: runner.run(session.close()))
            full = ground.size(self.calls, 2)
            few = max(2, full // 32)
            calls[OURS] = (lambda: _ours(tool)), full
            calls[FLOOR] = _floor(session, url, self.limit), full
            calls[PUBLIC] = (lambda: _ours(public)), full
            if self.ray and no_ray:
                missing["limiter of a Ray cluster"] = (
                    f"{no_ray}; the limiter is that of this process"
                )
            if self.ray and not self.alone:
                for baseline, make in ((DESIGN, _original), (VERL, _verl)):
                    if no_ray:
                        missing[baseline] = no_ray
                    elif isinstance(made := make(url, self.limit, self.callers), str):
                        missing[baseline] = made
                    else:
                        calls[baseline] = made, few

            def measured(call: Call, count: int) -> float:
                took = runner.run(repeat(call, self.callers, count))
                return took / count if self.alone else count / took

            yield in_turn({name: partial(measured, *call) for name, call in calls.items()}, missing)


async def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))


async def _ours(tool: SandboxFusionTool) -> None:
    _, _, metrics = await tool.execute("", {"code": CODE})
    assert metrics is not None
    assert metrics["outcome"] == "ok", metrics


def _floor(session: aiohttp.ClientSession, url: str, limit: int) -> Call:
    places = asyncio.Semaphore(limit)
    body = json.dumps({"code": CODE, "language": "python"}).encode()

    async def call() -> None:
        async with places, session.post(url, data=body) as answer:
            assert (await answer.json())["run_result"]["stdout"] == "3\n"

    return call


def _original(url: str, limit: int, callers: int) -> Call | str:
    from benchmarks.original_design import OriginalTool

    tool = OriginalTool(url, num_workers=128, rate_limit=limit)
    names = [f"trajectory-{number}" for number in range(callers)]
    for name in names:
        tool.create(name)
    instances = itertools.cycle(names)

    async def call() -> None:
        assert await tool.execute(next(instances), CODE) == "3\n"

    return call


def _verl(url: str, limit: int, callers: int) -> Call | str:
    """verl's own tool and its pool, with as many threads as the original design has."""
    try:
        import verl
        from verl.tools.sandbox_fusion_tools import SandboxFusionTool as VerlTool
        from verl.tools.schemas import OpenAIFunctionToolSchema
    except ImportError as error:
        return (
            "verl 0.7.1 is not installed"
            if (error.name or "").split(".")[0] == "verl"
            else f"verl: {error}"
        )
    if not verl.__version__.startswith("0.7."):
        return f"verl {verl.__version__} is installed instead"
    properties = {"code": {"type": "string", "description": "the program"}}
    function = {
        "name": "code_interpreter",
        "description": "Run a program.",
        "parameters": {"type": "object", "properties": properties, "required": ["code"]},
    }
    schema = OpenAIFunctionToolSchema.model_validate({"type": "function", "function": function})
    config = {
        "sandbox_fusion_url": url,
        "num_workers": 128,
        "rate_limit": limit,
        "enable_global_rate_limit": True,
    }
    with redirect_stdout(sys.stderr):  # it prints its schema
        tool = VerlTool(
            {
                **config,
                "default_timeout": 30,
                "default_language": "python",
                "memory_limit_mb": 1024,
            },
            schema,
        )
    instances: list[str] = []

    async def call() -> None:
        if len(instances) < callers:
            made: Any = await tool.create()
            instances.append(made[0] if isinstance(made, tuple) else made)
        answer: Any = await tool.execute(instances[-1], {"code": CODE})
        text = getattr(answer[0], "text", answer[0])
        assert "3" in str(text), answer

    return call
