"""Runs code in Sandbox Fusion with limiter, retries and guard, for any caller.

The tools and the rewards use this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sfusion_tools._loops import LoopThread
from sfusion_tools.event_log import EventLogSettings
from sfusion_tools.limiter import PermitSource
from sfusion_tools.limiter.ray_limiter import LimiterChoice
from sfusion_tools.outcome import Outcome
from sfusion_tools.runtime import runtime
from sfusion_tools.sandbox.arguments import BadArguments, check_text, read_arguments
from sfusion_tools.sandbox.call_log import CallLog
from sfusion_tools.sandbox.client import OnEvent, SandboxClient
from sfusion_tools.sandbox.config import SandboxToolConfig
from sfusion_tools.sandbox.fleet import Fleet
from sfusion_tools.sandbox.guard import SandboxGuard, shared_guard
from sfusion_tools.sandbox.program import RUNNABLE, Program
from sfusion_tools.sandbox.ray_metrics import counted_call
from sfusion_tools.sandbox.result import CallResult, new_call_id
from sfusion_tools.sandbox.text import model_text
from sfusion_tools.tracing import call_tracer

T = TypeVar("T")

_LONGEST = 86_400.0
"""Seconds that a caller, unlike a model, may let a program run. Chosen: a day."""


@dataclass(slots=True)
class CodeResult(CallResult):
    """How a program ended, and what a model reads about it."""

    tool: str = ""
    timeout: float = 0.0
    max_output_chars: int = 0
    remark: str = ""
    """What the model does not get exactly as it asked for."""

    @property
    def text(self) -> str:
        """The program's output, or a message that cannot be mistaken for it."""
        return model_text(
            self, self.tool, timeout=self.timeout, limit=self.max_output_chars, note=self.remark
        )

    @property
    def lost(self) -> bool:
        """True if this says nothing about the code: give it no reward, and leave the sample out of
        the loss and of its group's baseline."""
        return self.outcome.is_infrastructure


@dataclass(frozen=True, slots=True)
class Parts:
    """What a runner uses in place of what its config chooses."""

    limiter: Callable[[], PermitSource | None] | None = None
    """Returns the limiter of the running loop."""
    on_event: OnEvent | None = None
    """One that raises is logged once and does not affect the call."""
    fleet: Fleet | None = None
    """The state of the sandboxes, if it is not to be that of this process."""
    guard: Callable[[], SandboxGuard] | None = None
    """Returns the guard of the running loop."""


class CodeRunner:
    """Runs programs from any number of event loops and threads.

    Every failure of the sandbox is a result.
    """

    def __init__(
        self,
        sandbox: str | Sequence[str] | Mapping[str, Any] | SandboxToolConfig,
        *,
        name: str = "code_interpreter",
        languages: Collection[str] | None = None,
        parts: Parts | None = None,
        **settings: Any,
    ) -> None:
        """Read the config; nothing is connected yet.

        ``sandbox`` is a URL, several of them, or the config of a tool; ``settings`` are further
        keys of the config. ``name`` is that of the tool in texts and metrics, and ``languages`` are
        what a model may choose besides the default language, if not those of the config.
        """
        if isinstance(sandbox, SandboxToolConfig):
            config = sandbox
        else:
            given = sandbox if isinstance(sandbox, Mapping) else {"sandbox_fusion_url": sandbox}
            config = SandboxToolConfig.read({**given, **settings}, "CodeRunner")
        self.name = name
        self.settings = config
        self._languages = (config.languages or ()) if languages is None else languages
        self._trace = call_tracer() if config.tracing else None
        event_log = config.event_log or EventLogSettings.of_environment()
        self._call_log = None if event_log is None else CallLog(event_log, name)
        parts = parts or Parts()
        limiter = parts.limiter or LimiterChoice(
            config.limits,
            kind=config.limiter,
            name=config.limiter_name,
            apply=config.rate_limit_mismatch == "apply",
            share=config.share,
        )
        guard = parts.guard
        if guard is None and config.guard is not None:
            guard = shared_guard(config.guard, config.sandbox_fusion_url, config.headers)
        self.client = SandboxClient(
            config.sandbox_fusion_url,
            limiter=limiter if config.enable_global_rate_limit else lambda: None,
            retry=config.retry,
            bounds=config.bounds,
            headers=config.headers,
            trust_proxy_env=config.trust_proxy_env,
            on_event=parts.on_event,
            fleet=parts.fleet,
            guard=guard,
            call_log=self._call_log,
            score_provoked=config.score_provoked,
        )
        """Runs the programs, under the same limiter and guard.

        It reads no arguments and has no metrics for Ray.
        """

    async def run(
        self,
        code: str | Program,
        *,
        language: str | None = None,
        stdin: str | None = None,
        timeout: float | None = None,
        call_id: str | None = None,
    ) -> CodeResult:
        """Run code, by default in the language and for the time of the config.

        This raises only if the caller is cancelled or the guard stops the call; code that is no
        text, an unknown language and a timeout that is not one end as ``bad_arguments``.
        """
        if isinstance(code, Program):
            return await self.call(code, call_id=call_id)
        arguments = {"code": code, "language": language, "timeout": timeout}
        return await self.call(
            arguments, call_id=call_id, languages=RUNNABLE, longest=_LONGEST, stdin=stdin
        )

    def run_sync(self, code: str | Program, **arguments: Any) -> CodeResult:
        """Do what ``run`` does and block until it is done, in any thread.

        Connections are kept for the next call.
        """
        return in_shared_loop(self.run(code, **arguments))

    async def call(
        self,
        parameters: Any,
        *,
        call_id: str | None = None,
        trajectory: str | None = None,
        group: str | None = None,
        languages: Collection[str] | None = None,
        longest: float | None = None,
        stdin: str | None = None,
    ) -> CodeResult:
        """Run what a model asks for: ``{"code": …}``.

        It may set ``timeout`` and ``language`` as far as the config allows. ``languages`` and
        ``longest`` (a timeout) allow more. ``trajectory`` and ``group`` name the caller in the
        result, the event log and the spans.
        """
        settings = self.settings
        result = CodeResult(
            call_id or new_call_id(),
            Outcome.CANCELLED,
            tool=self.name,
            timeout=settings.default_timeout,
            max_output_chars=settings.max_output_chars,
            trajectory=trajectory,
            group=group,
        )
        trace = self._trace
        started = 0.0 if trace is None else time.perf_counter()
        try:
            with counted_call(self.name, result, on=settings.ray_metrics):
                try:
                    if isinstance(parameters, Program):
                        program = parameters
                    else:
                        offered = self._languages if languages is None else languages
                        program, result.remark = read_arguments(
                            parameters, settings, offered, longest=longest
                        )
                        if stdin is not None:
                            check_text("stdin", stdin)
                            program.stdin = stdin
                except BadArguments as error:
                    result.outcome = Outcome.BAD_ARGUMENTS
                    result.message = str(error)
                    result.problem = error.problem
                    if self._call_log is not None:
                        self._call_log.malformed(result, error)
                else:
                    result.timeout = program.timeout
                    await self.client.run(program, result=result)
        finally:
            if trace is not None:
                trace(result, self.name, time.perf_counter() - started, trajectory)
        return result

    async def aclose(self) -> None:
        """Close this loop's connections; the end of the loop closes them too."""
        await self.client.aclose()


def in_shared_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a loop that all blocking callers of this process share.

    This blocks until it is done.
    """
    return runtime.shared(in_shared_loop, lambda: LoopThread("sfusion runner")).run(work)
