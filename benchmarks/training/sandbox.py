"""The stack between the model and its results: parser, tool, limiter, and the fake with faults."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.fakes.sandbox.protocol import (
    CommandResult,
    Executor,
    RunCode,
    RunCodeAnswer,
    RunJupyter,
    RunJupyterAnswer,
)
from sfusion_tools.formats import get_format
from sfusion_tools.outcome import OUTCOMES
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool

from .conditions import Condition
from .tasks import LOOKS, look, secret
from .vocabulary import RESULT_END

_PRINTED = re.compile(r"print\((?:(\d+)\*(\d+)|(secret|look)\((\d+(?:,\d+)*)\))\)")
MARK = "  # sfusion:call="
_BROKEN = "SyntaxError: invalid syntax"


def printed(code: str) -> str | None:
    """Return what a program of the model prints; None if it is not one that runs."""
    found = _PRINTED.fullmatch(code)
    if found is None:
        return None
    if found[3] is None:
        return str(int(found[1]) * int(found[2]))
    numbers = [int(number) for number in found[4].split(",")]
    if found[3] == "secret" and len(numbers) == 2:
        return str(secret(*numbers))
    if found[3] == "look" and len(numbers) == 3 and 1 <= numbers[2] <= LOOKS:
        return str(look(*numbers))
    return None


class Calculator(Executor):
    """Computes the few programs that the model can write, without running code."""

    runs_code = False
    name = "calculator"

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds

    async def run_code(self, request: RunCode) -> RunCodeAnswer:
        if self._seconds:
            await asyncio.sleep(self._seconds)
        text = printed(request.code.partition(MARK)[0])
        if text is None:
            failed = CommandResult("Finished", self._seconds, 1, "", _BROKEN)
            return RunCodeAnswer("Failed", run_result=failed)
        done = CommandResult("Finished", self._seconds, 0, f"{text}\n", "")
        return RunCodeAnswer("Success", run_result=done)

    async def run_jupyter(self, request: RunJupyter) -> RunJupyterAnswer:
        return RunJupyterAnswer("Failed", message="there are no notebooks here")


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model reads of one call, and whether the call was lost."""

    text: str
    lost: bool


PROGRAM_SECONDS = 0.05
"""How long a program takes under a quota: longer than it takes to send all calls of a step."""
QUOTA_DEADLINE = 0.5
"""Seconds of a call under a quota: shorter than the second that a 429 asks to wait, so that a
throttled call is lost."""
SHORT_PAUSE = 0.01
"""Seconds before a retry; here attempts fail independently, so waiting would change nothing."""
MOST_IN_FLIGHT = 4096
"""More than a step has calls: only the sandbox limits."""


class Stack:
    """A tool with its limiter, and a fake sandbox that fails as a condition says; None: healthy."""

    def __init__(self, condition: Condition | None) -> None:
        self._condition = condition
        quota = None if condition is None else condition.quota
        self._sandbox = FakeSandbox(
            executor=Calculator(0.0 if quota is None else PROGRAM_SECONDS),
            model=None if quota is None else {"kind": "quota", "in_flight": quota},
            seed=0 if condition is None else condition.seed,
        )
        self._config: dict[str, Any] = {
            "limiter": "local",
            "limiter_name": "healthy" if condition is None else condition.name,
            "rate_limit": MOST_IN_FLIGHT,
            "max_attempts": 1 if condition is None else condition.attempts,
            "backoff_base": SHORT_PAUSE,
        }
        if quota is not None:
            self._config["call_deadline"] = QUOTA_DEADLINE
        self._names = itertools.count(1)
        self._format = get_format("hermes")
        self._step = 0

    async def start(self) -> None:
        await self._sandbox.start()
        self._tool = SandboxFusionTool(self._config | {"sandbox_fusion_url": self._sandbox.url})

    async def stop(self) -> None:
        await self._tool.aclose()
        await self._sandbox.stop()

    def begin_step(self, step: int) -> None:
        """Set the faults of a step, and drop what the fake remembers of the last one."""
        if step == self._step or self._condition is None:
            return
        before = self._condition.faults(self._step)
        self._step = step
        self._sandbox.ledger.clear()
        now = self._condition.faults(step)
        if now != before:
            self._sandbox.set_faults(now)

    async def answer(self, texts: Sequence[str]) -> list[Reply]:
        """Parse the call at the end of each text, make all of them at once, and return replies."""
        return await asyncio.gather(*map(self._answer, texts))

    async def _answer(self, text: str) -> Reply:
        # Only what was written since the last result: an end without a call repeats none.
        parsed = self._format.parse(text.rpartition(RESULT_END)[2])
        if not parsed.calls:
            return Reply("not a call", lost=False)
        name = f"c{next(self._names)}"
        # The mark makes each call one of its own: equal programs are not lost together.
        code = f"{parsed.calls[-1].arguments.get('code')}{MARK}{name}"
        arguments = {"code": code}
        response, _, metrics = await self._tool.execute(name, arguments, call_id=name)
        assert metrics is not None
        outcome = OUTCOMES[metrics["outcome"]]
        return Reply((response.text or "").strip(), outcome.is_infrastructure)
