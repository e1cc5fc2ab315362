"""What the checks share: how to reach the sandbox, and what is known about it so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.doctor.http import Answer, Silence, Wire
from harness.doctor.plan import Plan
from harness.doctor.proxies import proxy_of
from harness.doctor.subject import Subject
from sfusion_tools.sandbox import Bounds, CallResult, Program, RetryPolicy, SandboxClient


@dataclass(slots=True)
class Patient:
    """A sandbox under examination."""

    subject: Subject
    plan: Plan
    wire: Wire
    environ: Mapping[str, str]
    root: Path
    announce: Callable[[str], None]
    """Says something to the person who waits, before it is done."""
    reached: bool = False
    """Something took our connection."""
    ping: Answer | Silence | None = None
    stopped: str = ""
    """Why nothing further can be examined; empty while all is open."""
    memory_limit_mb: int = -1
    """The limit that probes are sent with: the config's once that is known to work."""
    measured: dict[str, Any] = field(default_factory=dict)
    """Figures for the report."""
    _client: SandboxClient | None = None

    @property
    def proxy(self) -> str | None:
        """The proxy that training's requests go through."""
        return proxy_of(self.subject, self.environ)

    @property
    def client(self) -> SandboxClient:
        """The client that training uses, without its patience: nothing is tried twice."""
        if self._client is None:
            self._client = SandboxClient(
                self.subject.base,
                retry=RetryPolicy(max_attempts=1),
                bounds=Bounds(margin=self.plan.patience),
                headers=self.subject.headers,
                trust_proxy_env=self.subject.trust_proxy_env,
            )
        return self._client

    async def run(
        self,
        name: str,
        code: str,
        *,
        language: str = "python",
        seconds: float = 10.0,
        stdin: str | None = None,
        memory_limit_mb: int | None = None,
    ) -> CallResult:
        """Run a program; its mark tells whoever follows the calls of a fake that it was ours."""
        limit = self.memory_limit_mb if memory_limit_mb is None else memory_limit_mb
        program = Program(
            marked(name, code, language), language, seconds, memory_limit_mb=limit, stdin=stdin, compile_timeout=10.0
        )
        return await self.client.run(program, call_id=f"doctor-{name}")

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()


_COMMENTS = {"cpp": "//", "nodejs": "//", "java": "//", "go": "//", "typescript": "//", "rust": "//", "php": "//"}


def marked(name: str, code: str, language: str = "python", hints: str = "") -> str:
    """The code with our mark behind it, in a comment of its language."""
    sign = _COMMENTS.get(language, "#" if language in _HASH else "")
    return f"{code}\n{sign} sfusion:call=doctor-{name}{hints}\n" if sign else code


_HASH = frozenset({"python", "bash", "ruby", "perl", "R", "julia", "pytest"})
