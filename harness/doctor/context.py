"""What the checks share: how to reach the sandbox, and what is known about it so far."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sfusion.harness.doctor.http import HttpAnswer, HttpClient, NoAnswer
from sfusion.harness.doctor.plan import Plan
from sfusion.harness.doctor.proxy_env import proxy_of
from sfusion.harness.doctor.settings import SandboxSettings
from sfusion.harness.errors import NotExamined, Vanished
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox import Bounds, CallResult, Program, RetryPolicy, SandboxClient

TRIES = 3
"""Attempts for a program that finds no answer."""


@dataclass(slots=True)
class CheckContext:
    """A sandbox under examination."""

    settings: SandboxSettings
    plan: Plan
    http: HttpClient
    environ: Mapping[str, str]
    root: Path
    announce: Callable[[str], None]
    """Says something to the person who waits, before it is done."""
    reached: bool = False
    """Something took our connection."""
    ping: HttpAnswer | NoAnswer | None = None
    stopped: str = ""
    """Why nothing further can be examined; empty while all is open."""
    memory_limit_mb: int = -1
    """The limit that probes are sent with: the config's once that is known to work."""
    measured: dict[str, Any] = field(default_factory=dict)
    """Figures for the report."""
    programs: int = 0
    """Programs that would have been sent again."""
    failures: Counter[str] = field(default_factory=Counter)
    """Those that had no answer of the sandbox, by what came instead."""
    _client: SandboxClient | None = None

    @property
    def proxy(self) -> str | None:
        """The proxy that training's requests go through."""
        return proxy_of(self.settings, self.environ)

    @property
    def client(self) -> SandboxClient:
        """The client that training uses, without its patience: nothing is tried twice."""
        if self._client is None:
            self._client = SandboxClient(
                self.settings.base,
                retry=RetryPolicy(max_attempts=1),
                bounds=Bounds(margin=self.plan.patience),
                headers=self.settings.headers,
                trust_proxy_env=self.settings.trust_proxy_env,
            )
        return self._client

    async def run(
        self,
        name: str,
        code: str,
        *,
        language: str = "python",
        seconds: float | None = None,
        stdin: str | None = None,
        memory_limit_mb: int | None = None,
        once: bool = False,
    ) -> CallResult:
        """Run a program; its mark tells whoever follows the calls of a fake that it was ours.

        When no answer of the sandbox comes, it is sent again as training would, unless only ``once``. Raises Vanished
        when the sandbox is gone, and NotExamined when this program finds no answer.
        """
        limit = self.memory_limit_mb if memory_limit_mb is None else memory_limit_mb
        program = Program(
            marked(name, code, language),
            language,
            self.plan.seconds if seconds is None else seconds,
            memory_limit_mb=limit,
            stdin=stdin,
            compile_timeout=10.0,
        )
        why = ""
        for turn in range(TRIES):
            await asyncio.sleep(self.plan.pause * turn)
            result = await self.client.run(program, call_id=f"doctor-{name}")
            if once:
                return result
            self.programs += 1
            why = _failure(result)
            if not why:
                return result
            self.failures[why] += 1
            if result.outcome in (Outcome.UNREACHABLE, Outcome.TRANSPORT_TIMEOUT):
                await self.must_answer(result.message)
        raise NotExamined(f"no answer in {TRIES} attempts: {why}")

    async def must_answer(self, why: str) -> None:
        """Raise Vanished unless it still runs the simplest program."""
        body = Program(marked("alive", "print(1)"), timeout=self.plan.patience, memory_limit_mb=-1).body()
        answer = await self.http.post(self.settings.at("run_code"), body, within=self.plan.patience, proxy=self.proxy)
        if isinstance(answer, NoAnswer):
            raise Vanished(f"{why}; and a program that prints one line has no answer either: {answer.text}")

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()


def _failure(result: CallResult) -> str:
    """What came instead of the sandbox's answer; nothing when it answered, however."""
    status = result.attempts[-1].status if result.attempts else None
    if status is None:
        return result.outcome.value
    return f"status {status}" if status == 429 or status >= 500 else ""


_COMMENTS = {"cpp": "//", "nodejs": "//", "java": "//", "go": "//", "typescript": "//", "rust": "//", "php": "//"}


def marked(name: str, code: str, language: str = "python", hints: str = "") -> str:
    """The code with our mark behind it, in a comment of its language."""
    sign = _COMMENTS.get(language, "#" if language in _HASH else "")
    return f"{code}\n{sign} sfusion:call=doctor-{name}{hints}\n" if sign else code


_HASH = frozenset({"python", "bash", "ruby", "perl", "R", "julia", "pytest"})
