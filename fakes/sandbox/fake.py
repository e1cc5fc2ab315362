"""The fake sandbox in this process, started from async or from synchronous code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from sfusion.fakes.errors import SandboxSetupError
from sfusion.fakes.faults import Rule, read_rules
from sfusion.fakes.sandbox.app import SandboxApp
from sfusion.fakes.sandbox.executors import Cassette, make_executor
from sfusion.fakes.sandbox.gate import Gate
from sfusion.fakes.sandbox.models import read_model
from sfusion.fakes.sandbox.profile import PROFILES, Profile
from sfusion.fakes.sandbox.program import ProgramScript
from sfusion.fakes.sandbox.protocol import Executor
from sfusion.fakes.wire import Access, AdminRoutes, EventSink, Served, WireServer
from sfusion.fakes.wire.metrics import queue_family
from sfusion.fakes.wire.request_log import EventLogPath, RequestLog
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
        faults: Iterable[Rule | Mapping[str, Any]] = (),
        model: Any = None,
        seed: int = 0,
        host: str = "127.0.0.1",
        port: int = 0,
        scripts: Iterable[ProgramScript | Mapping[str, Any]] = (),
        cassette: Cassette | str | Path | None = None,
        token: str | None = None,
        require_token: bool = False,
        allow_remote: bool = False,
        allow_hosts: Iterable[str] = (),
        allow_origins: Iterable[str] = (),
        journal: EventSink | None = None,
        access_log: Callable[[str], None] | None = None,
        event_log: EventLogPath | None = None,
    ) -> None:
        if profile not in PROFILES:
            raise SandboxSetupError(f"unknown profile {profile!r}; {near(profile, PROFILES)}")
        self.profile: Profile = profile
        self.model = read_model(model)
        rules = read_rules(faults)
        self._gate = Gate(self.model)
        self.executor_name = executor if isinstance(executor, str) else type(executor).__name__
        self.executor: Executor = (
            make_executor(executor, profile=profile, scripts=scripts, cassette=cassette, work=self._gate.work)
            if isinstance(executor, str)
            else executor
        )
        access = Access(
            host,
            token=token,
            require_token=require_token,
            runs_code=self.executor.runs_code,
            allow_remote=allow_remote,
            allow_hosts=allow_hosts,
            allow_origins=allow_origins,
        )
        app = SandboxApp(self.executor, self._gate, profile=profile)
        app.admin = AdminRoutes(self)
        super().__init__(
            WireServer(
                app,
                host=host,
                port=port,
                rules=rules,
                seed=seed,
                journal=journal,
                access_log=access_log,
                access=access,
            )
        )
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
