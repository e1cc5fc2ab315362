"""The fake as a server: inside a running loop, or beside synchronous code in a thread of its own."""

from __future__ import annotations

import asyncio
import ipaddress
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Literal, TypeVar

from fakes.faults import Rule
from fakes.sglang.admin import Admin
from fakes.sglang.app import SGLangApp
from fakes.sglang.engine import FakeSGLang
from fakes.sglang.faults import engine_rules, split
from fakes.sglang.gsm8k import Gsm8kSolver
from fakes.sglang.parsers import Quirks
from fakes.sglang.protocol import Policy
from fakes.sglang.routes import ModelInfo
from fakes.wire import Journal, Ledger, WireServer

T = TypeVar("T")


class _Wire(WireServer):
    """A server whose death is also its engine's."""

    engine: FakeSGLang

    def crash(self, *, restart_after: float | None = None) -> None:
        """Die, and forget what the engine knew."""
        super().crash(restart_after=restart_after)
        self.engine.crash()

    async def restart(self) -> None:
        """Come back."""
        self.engine.restart()
        await super().restart()


class FakeSGLangServer:
    """An sglang server without a model.

    ``async with FakeSGLangServer(policy) as server`` inside a loop, ``with FakeSGLangServer(policy) as server``
    anywhere else (its loop then runs in a thread); then ``server.url``. An engine may be given in place of a policy.
    ``tool_call_parser`` is the format in which calls are written and read; None switches tool calls off, as in sglang.
    """

    def __init__(
        self,
        policy: Policy | FakeSGLang | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tool_call_parser: str | None = "qwen25",
        reasoning_parser: str | None = None,
        quirks: Quirks = None,
        model: str = "fake-model",
        report_cache: bool = False,
        faults: Iterable[Rule | Mapping[str, Any]] = (),
        seed: int = 0,
        allow_remote: bool = False,
        journal: Journal | None = None,
        access_log: Callable[[str], None] | None = None,
    ) -> None:
        if not allow_remote and not _is_loopback(host):
            raise ValueError(
                f"{host} can be reached from other machines; say allow_remote (--allow-remote) if that is meant"
            )
        if isinstance(policy, FakeSGLang):
            self.engine = policy
        else:
            self.engine = FakeSGLang(policy or Gsm8kSolver(), format=tool_call_parser or "qwen25", seed=seed)
        self.info = ModelInfo(
            name=model,
            tool_call_parser=tool_call_parser,
            reasoning_parser=reasoning_parser,
            quirks=quirks,
            report_cache=report_cache,
        )
        self.app = SGLangApp(self.engine, self.info)
        if _is_loopback(host):
            self.app.admin = Admin(self)  # who cannot log in must not change faults from afar
        self.rules: list[Rule] = engine_rules(list(faults))
        at_socket, in_engine = split(self.rules)
        if in_engine:
            self.engine.set_faults(in_engine)
        self.server = _Wire(
            self.app, host=host, port=port, rules=at_socket, seed=seed, journal=journal, access_log=access_log
        )
        self.server.engine = self.engine
        self._thread: _LoopThread | None = None

    # -- life --

    async def start(self) -> FakeSGLangServer:
        """Listen, on the running loop."""
        self.app.handlers.exiting = False
        await self.server.start()
        return self

    async def stop(self, grace: float = 5.0) -> None:
        """Stop listening; requests in flight have so many seconds to end."""
        self.app.handlers.exiting = True
        await self.server.stop(grace)

    async def __aenter__(self) -> FakeSGLangServer:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.stop(grace=1.0)

    def __enter__(self) -> FakeSGLangServer:
        self._thread = _LoopThread()
        try:
            self._thread.wait_for(self.start())
        except BaseException:
            self._thread.close()
            self._thread = None
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.wait_for(self.stop(grace=1.0))
            finally:
                thread.close()

    # -- what it is and knows --

    @property
    def url(self) -> str:
        """``http://host:port``; the OpenAI routes are below ``/v1``."""
        return self.server.url

    @property
    def port(self) -> int:
        """The port."""
        return self.server.port

    @property
    def ledger(self) -> Ledger:
        """What arrived and what was answered."""
        return self.server.ledger

    # -- what can be done to it --

    def set_faults(self, faults: Iterable[Rule | Mapping[str, Any]], *, seed: int | None = None) -> None:
        """Replace all faults; their counters and clocks begin anew."""
        rules = engine_rules(list(faults))
        self._do(lambda: self.replace_faults(rules, seed=seed))

    def crash(self, *, restart_after: float | None = None) -> None:
        """Die now: port closed, connections reset, generations lost."""
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

    def replace_faults(self, rules: list[Rule], *, seed: int | None = None) -> None:
        """The same from inside the server's loop."""
        self.rules = rules
        at_socket, in_engine = split(rules)
        self.server.set_faults(at_socket, seed=seed)
        self.engine.set_faults(in_engine)

    def fault_names(self) -> list[str]:
        """The rules in force, by name or kind."""
        return [rule.name or rule.what[0].kind for rule in self.rules]

    def _do(self, action: Callable[[], object]) -> None:
        """Run something where the server lives: here, or in its thread."""
        if self._thread is None:
            action()
        else:
            self._thread.wait_for(_later(action))


async def _later(action: Callable[[], object]) -> None:
    action()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-sglang", daemon=True)
        self._thread.start()

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something there and wait for it here."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """End the loop."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
