"""The fake sandbox as a thing to hold: started in this process, asynchronously or from plain code."""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar

from fakes.faults import Rule, read_rules
from fakes.sandbox.admin import Admin
from fakes.sandbox.app import SandboxApp
from fakes.sandbox.errors import SandboxSetupError, UnsafeBindError
from fakes.sandbox.executors import Cassette, make_executor
from fakes.sandbox.gate import Gate
from fakes.sandbox.models import read_model
from fakes.sandbox.profile import PROFILES, Profile
from fakes.sandbox.program import Script
from fakes.sandbox.protocol import Executor
from fakes.wire import Journal, Ledger, WireServer

T = TypeVar("T")


def is_loopback(host: str) -> bool:
    """Can only this machine reach an address?"""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class FakeSandbox:
    """A fake Sandbox Fusion.

    ``async with FakeSandbox() as sandbox:`` or ``with FakeSandbox() as sandbox:`` (its loop then runs in a thread);
    either way ``sandbox.url`` answers when the block is entered, and nothing is left when it ends.
    """

    def __init__(
        self,
        *,
        executor: str | Executor = "scripted",
        profile: Profile = "2026-07",
        faults: Iterable[Rule | Mapping[str, Any]] = (),
        model: Any = None,
        seed: int = 0,
        host: str = "127.0.0.1",
        port: int = 0,
        scripts: Iterable[Script | Mapping[str, Any]] = (),
        cassette: Cassette | str | Path | None = None,
        token: str | None = None,
        allow_remote: bool = False,
        journal: Journal | None = None,
        access_log: Callable[[str], None] | None = None,
    ) -> None:
        if profile not in PROFILES:
            raise SandboxSetupError(f"unknown profile {profile!r}; known are {', '.join(PROFILES)}")
        self.profile: Profile = profile
        self.model = read_model(model)
        self._rules = read_rules(faults)
        self._gate = Gate(self.model)
        self.executor_name = executor if isinstance(executor, str) else type(executor).__name__
        self.executor: Executor = (
            make_executor(executor, profile=profile, scripts=scripts, cassette=cassette, work=self._gate.work)
            if isinstance(executor, str)
            else executor
        )
        local = is_loopback(host)
        if not local and self.executor.runs_code and not (allow_remote and token):
            raise UnsafeBindError(
                f"listening on {host} would run code for everybody who reaches this machine; "
                "give both allow_remote (--allow-remote) and a token (--token), or listen on 127.0.0.1"
            )
        self.token = token if token or local else secrets.token_urlsafe(16)
        app = SandboxApp(self.executor, self._gate, token=self.token, guard_all=not local and self.executor.runs_code)
        app.admin = Admin(self)
        self.server = WireServer(
            app, host=host, port=port, rules=self._rules, seed=seed, journal=journal, access_log=access_log
        )
        self._thread: _LoopThread | None = None

    # -- life --

    async def start(self) -> FakeSandbox:
        """Listen."""
        await self.server.start()
        return self

    async def stop(self, grace: float = 5.0) -> None:
        """Stop listening, let requests in flight finish for ``grace`` seconds, end everything that runs."""
        await self.server.stop(grace)
        self._gate.close()
        await self.executor.aclose()

    async def __aenter__(self) -> FakeSandbox:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop(grace=1.0)

    def __enter__(self) -> FakeSandbox:
        self._thread = _LoopThread()
        try:
            self._thread.wait_for(self.start())
        except BaseException:
            self._thread.close()
            self._thread = None
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.wait_for(self.stop(grace=1.0))
            finally:
                thread.close()

    # -- what it is and knows --

    @property
    def url(self) -> str:
        """``http://127.0.0.1:PORT``."""
        return self.server.url

    @property
    def port(self) -> int:
        """The port."""
        return self.server.port

    @property
    def ledger(self) -> Ledger:
        """What arrived and what was executed."""
        return self.server.ledger

    def state(self) -> dict[str, Any]:
        """What the fake is set to and how it is."""
        server = self.server
        return {
            "url": server.url,
            "profile": self.profile,
            "executor": self.executor_name,
            "runs_code": self.executor.runs_code,
            "model": self.model.model_dump(mode="json", exclude_defaults=True) | {"kind": self.model.kind},
            "seed": server.plan.seed,
            "faults": [rule.name for rule in server.plan.rules],
            "running": server.running,
            "wedged": server.wedged_by is not None,
            "in_flight": server.ledger.in_flight,
            "executing": server.ledger.executing,
        }

    # -- what can be done to it --

    def set_faults(self, faults: Iterable[Rule | Mapping[str, Any]], *, seed: int | None = None) -> None:
        """Replace all fault rules."""
        rules = read_rules(faults)
        self._do(lambda: self.server.set_faults(rules, seed=seed))

    def clear_faults(self) -> None:
        """No faults from now on."""
        self.set_faults([])

    def forget(self) -> None:
        """Clear the ledger and start the counters and clocks of the faults anew."""
        self._do(self._forget)

    def _forget(self) -> None:
        self.ledger.clear()
        self.server.set_faults(self.server.plan.rules)

    def crash(self, *, restart_after: float | None = None) -> None:
        """Die now: port closed, connections reset, runs broken off."""
        self._do(lambda: self.server.crash(restart_after=restart_after))

    def restart(self) -> None:
        """Come back after a crash, on the same port."""
        self._do(lambda: self.server.keep(self.server.restart()))

    def wedge(self, *, ping: Literal["alive", "dead"] = "alive", seconds: float | None = None) -> None:
        """Accept and never answer from now on."""
        self._do(lambda: self.server.wedge(ping=ping, seconds=seconds))

    def unwedge(self) -> None:
        """Answer again."""
        self._do(self.server.unwedge)

    def _do(self, action: Callable[[], object]) -> None:
        """Run something where the server lives: here, or in its thread."""
        if self._thread is None or self._thread.is_current():
            action()
        else:
            self._thread.wait_for(_later(action))


async def _later(action: Callable[[], object]) -> None:
    action()


class _LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-sandbox", daemon=True)
        self._thread.start()

    def is_current(self) -> bool:
        """Is the caller in this thread?"""
        return threading.current_thread() is self._thread

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """End the loop and the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
