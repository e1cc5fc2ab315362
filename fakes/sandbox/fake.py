"""The fake sandbox in this process, started from async or from synchronous code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Unpack

from sfusion.fakes.errors import SandboxSetupError
from sfusion.fakes.faults import read_rules
from sfusion.fakes.sandbox.app import SandboxApp
from sfusion.fakes.sandbox.executors import Cassette, make_executor
from sfusion.fakes.sandbox.gate import Gate
from sfusion.fakes.sandbox.models import read_model
from sfusion.fakes.sandbox.program import ProgramScript
from sfusion.fakes.sandbox.protocol import PROFILES, Executor, Profile
from sfusion.fakes.wire import Served, ServerOptions
from sfusion.fakes.wire.metrics import queue_family
from sfusion.fakes.wire.request_log import EventLogPath, RequestLog
from sfusion.fakes.wire.served import server_of
from sfusion_tools.errors import near
from sfusion_tools.exposition import MetricFamily


class FakeSandbox(Served):
    """A fake Sandbox Fusion.

    ``async with FakeSandbox() as sandbox:`` or ``with FakeSandbox() as sandbox:`` (its loop then runs in a thread);
    either way ``sandbox.url`` answers when the block is entered, and nothing is left running when it ends.
    Nothing runs code unless ``executor="python"`` asks for it: a program without a script fails with an error.
    """

    def __init__(
        self,
        *,
        executor: str | Executor = "none",
        profile: Profile = "2026-07",
        model: Any = None,
        scripts: Iterable[ProgramScript | Mapping[str, Any]] = (),
        cassette: Cassette | str | Path | None = None,
        event_log: EventLogPath | None = None,
        **options: Unpack[ServerOptions],
    ) -> None:
        if profile not in PROFILES:
            raise SandboxSetupError(f"unknown profile {profile!r}; {near(profile, PROFILES)}")
        self.profile: Profile = profile
        self.model = read_model(model)
        rules = read_rules(options.get("faults", ()))
        self._gate = Gate(self.model)
        self.executor_name = executor if isinstance(executor, str) else type(executor).__name__
        self.executor: Executor = (
            make_executor(executor, profile=profile, scripts=scripts, cassette=cassette, work=self._gate.work)
            if isinstance(executor, str)
            else executor
        )
        app = SandboxApp(self.executor, self._gate, profile=profile)
        super().__init__(server_of(self, app, rules, options, runs_code=self.executor.runs_code))
        if event_log is not None:
            self.server.request_log = RequestLog(event_log, lambda: self.url)

    async def stop(self, grace: float = 5.0) -> None:
        """Stop listening, let requests in flight finish for ``grace`` seconds, then end all programs."""
        await super().stop(grace)
        self._gate.close()
        await self.executor.aclose()

    def _families(self) -> list[MetricFamily]:
        return [*super()._families(), queue_family(self._gate.waiting)]

    def state(self) -> dict[str, Any]:
        return {
            "url": self.url,
            "profile": self.profile,
            "executor": self.executor_name,
            "runs_code": self.executor.runs_code,
            "model": self.model.as_data(),
            **self._server_state(),
        }
