"""Processes that are killed in virtual time: what runs in one stops between two steps, and nothing
of it is ever cleaned up.

A task of a killed process is neither cancelled nor closed, so no ``finally`` runs. Its connections
are reset, as a kernel does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any

from .virtual_time import VirtualTimeLoop


class Life:
    """A process: its tasks, its connections, and whether it lives."""

    def __init__(self) -> None:
        self.is_alive = True
        self._tasks: list[asyncio.Task[Any]] = []
        """Kept, because a task that is collected is closed, which runs its ``finally``."""
        self._connections: list[asyncio.Transport] = []
        self._held: list[tuple[Callable[..., object], tuple[Any, ...], Context]] = []

    def keep_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.append(task)

    def keep_connection(self, connection: asyncio.Transport) -> None:
        self._connections = [
            connection for connection in self._connections if not connection.is_closing()
        ]
        self._connections.append(connection)

    def hold(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context
    ) -> None:
        """Keep a callback that will not run as long as the process is dead."""
        self._held.append((callback, args, context))

    def end(self) -> None:
        """End like a killed process."""
        self.is_alive = False
        for connection in self._connections:
            connection.abort()
        self._connections.clear()

    def wake(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let everything go on, so that it can be cancelled when the run is over."""
        self.is_alive = True
        for callback, args, context in self._held:
            loop.call_soon(callback, *args, context=context)
        self._held.clear()


_life: ContextVar[Life | None] = ContextVar("life", default=None)
"""The process that something runs in; None for what cannot be killed."""


def start_in(life: Life, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Start a task in a process; the tasks that it starts belong to the process, too."""
    context = copy_context()
    context.run(_life.set, life)
    return context.run(asyncio.get_running_loop().create_task, work)


class MortalLoop(VirtualTimeLoop):
    """An event loop that runs nothing of a process that is dead."""

    def __init__(self, *options: Any) -> None:
        super().__init__(*options)
        self.on_task = _keep_task

    def call_soon(  # type: ignore[override] # typeshed ties the arguments to the callback
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Like asyncio's, but holds back what belongs to a dead process."""
        if context is None:
            context = copy_context()
        life = context.get(_life)
        if life is None or life.is_alive:
            return super().call_soon(callback, *args, context=context)
        life.hold(callback, args, context)
        return asyncio.Handle(callback, args, self, context)

    async def create_connection(self, *args: Any, **options: Any) -> Any:
        """Like asyncio's; the connection belongs to the process that opens it."""
        transport, protocol = await super().create_connection(*args, **options)
        life = _life.get()
        if life is not None:
            life.keep_connection(transport)
        return transport, protocol


def _keep_task(task: asyncio.Task[Any]) -> None:
    life = _life.get()
    if life is not None:
        life.keep_task(task)
