"""The fake as a server: inside a running loop, or beside synchronous code in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future

from fakes.faults import Rule
from fakes.sglang.app import SGLangApp
from fakes.sglang.engine import FakeSGLang
from fakes.sglang.faults import checked, split
from fakes.sglang.gsm8k import Gsm8kSolver
from fakes.sglang.parsers import Quirks
from fakes.sglang.protocol import Policy
from fakes.sglang.routes import ModelInfo
from fakes.wire import Journal, Ledger, WireServer


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
    anywhere else; then ``server.url``. An engine may be given in place of a policy. ``tool_call_parser`` is the format
    in which calls are written and read; None switches tool calls off, as in sglang.
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
        faults: Iterable[Rule] = (),
        seed: int = 0,
        journal: Journal | None = None,
        access_log: Callable[[str], None] | None = None,
    ) -> None:
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
        at_socket, in_engine = split(checked(faults))
        if in_engine:
            self.engine.set_faults(in_engine)
        self._make: Callable[[], _Wire] = lambda: _Wire(
            self.app, host=host, port=port, rules=at_socket, seed=seed, journal=journal, access_log=access_log
        )
        self._wire: _Wire | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def wire(self) -> WireServer:
        """The HTTP server, once started: faults, crash and restart, wedge."""
        if self._wire is None:
            raise RuntimeError("the server has not been started: use it in a with statement, or call start()")
        return self._wire

    @property
    def url(self) -> str:
        """``http://host:port``; the OpenAI routes are below ``/v1``."""
        return self.wire.url

    @property
    def ledger(self) -> Ledger:
        """What arrived and what was answered."""
        return self.wire.ledger

    async def start(self) -> FakeSGLangServer:
        """Listen, on the running loop."""
        self._wire = self._make()
        self._wire.engine = self.engine
        await self._wire.start()
        return self

    async def stop(self, grace: float = 5.0) -> None:
        """Stop listening; requests in flight have so many seconds to end."""
        self.app.handlers.exiting = True
        if self._wire is not None:
            await self._wire.stop(grace)

    def set_faults(self, rules: Iterable[Rule]) -> None:
        """Replace all faults."""
        at_socket, in_engine = split(checked(rules))
        self.wire.set_faults(at_socket)
        self.engine.set_faults(in_engine)

    async def __aenter__(self) -> FakeSGLangServer:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    def __enter__(self) -> FakeSGLangServer:
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._serve, args=(ready,), name="fake-sglang", daemon=True)
        self._thread.start()
        ready.result()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join()

    def _serve(self, ready: Future[None]) -> None:
        async def live() -> None:
            self._loop = asyncio.get_running_loop()
            self._over = asyncio.Event()
            try:
                await self.start()
            except BaseException as error:
                ready.set_exception(error)
                return
            ready.set_result(None)
            await self._over.wait()
            await self.stop(grace=1.0)

        asyncio.run(live())
