"""A fake as a thing to hold: started inside a running loop, or beside plain code in a thread of its own."""

from __future__ import annotations

import asyncio
import ipaddress
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from sfusion.fakes.faults import Rule, read_rules
from sfusion.fakes.wire.ledger import Ledger
from sfusion.fakes.wire.server import WireServer

T = TypeVar("T")


def is_loopback(host: str) -> bool:
    """Can only this machine reach an address?"""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Served:
    """What every fake with a server can do.

    ``async with`` uses the running loop, ``with`` a thread; either way ``url`` answers when the block is entered, and
    nothing is left when it ends. A fake gives its server here and adds to ``start`` and ``stop`` what is its own.
    """

    def __init__(self, server: WireServer) -> None:
        self.server = server
        self._thread: _LoopThread | None = None

    async def start(self) -> Self:
        """Listen, on the running loop."""
        await self.server.start()
        return self

    async def stop(self, grace: float = 5.0) -> None:
        """Stop listening; requests in flight have so many seconds to end."""
        await self.server.stop(grace)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop(grace=1.0)

    def __enter__(self) -> Self:
        self._thread = _LoopThread(type(self).__name__)
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
        """What arrived, what was executed and what was answered."""
        return self.server.ledger

    def crash(self, *, restart_after: float | None = None) -> None:
        """Die now: port closed, connections reset, work broken off."""
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


class Faulted(Served):
    """A fake whose faults are all the wire's."""

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


async def _later(action: Callable[[], object]) -> None:
    action()


async def _cancel_others() -> None:
    """End what still runs, as asyncio.run does: somebody who was being let in when the server was stopped, say."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class _LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
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
        self._loop.run_until_complete(_cancel_others())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
