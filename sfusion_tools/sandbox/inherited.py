"""What subclasses of verl's tool rely on, inside this process.

They call ``execution_pool.execute.remote(self.execute_code, …)``. verl's pool runs a function in a
Ray actor, under one permit. Here ``execute_code`` goes through the runner in the caller's loop, and
any other function runs in a thread, under a permit that it gives up if it calls ``execute_code``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

from sfusion_tools._loops import in_daemon_thread
from sfusion_tools.limiter import Permit


@dataclass(slots=True)
class Caller:
    """The ``execute`` of a subclass that is under way.

    It may pass on neither ``agent_data`` nor metrics.
    """

    agent_data: Any = None
    metrics: dict[str, Any] | None = None
    """Of the last call that it made."""


calling: ContextVar[Caller | None] = ContextVar("calling", default=None)
_give_up_permit: ContextVar[Callable[[], object] | None] = ContextVar(
    "give_up_permit", default=None
)


def followed(
    execute: Callable[..., Coroutine[Any, Any, Any]],
) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Make an ``execute`` whose calls are counted.

    Its metrics are those of its last call if it returns none.
    """

    @wraps(execute)
    async def followed_execute(*args: Any, **kwargs: Any) -> Any:
        if calling.get() is not None:  # that of a subclass, which called its base
            return await execute(*args, **kwargs)
        caller = Caller(kwargs.get("agent_data"))
        token = calling.set(caller)
        try:
            result = await execute(*args, **kwargs)
        finally:
            calling.reset(token)
        if isinstance(result, tuple) and len(result) == 3 and result[2] is None:
            return *result[:2], caller.metrics
        return result

    return followed_execute


def give_up_permit() -> None:
    """Return the permit of the function that is running in the pool, if there is one.

    The runner takes its own.
    """
    give_up = _give_up_permit.get()
    if give_up is not None:
        give_up()


class ExecutionPool:
    """Looks like verl's pool, a Ray actor: ``await pool.execute.remote(fn, *args)``."""

    def __init__(
        self,
        permit: Callable[[], Permit[Any] | None],
        direct: Callable[[Any], Callable[..., Coroutine[Any, Any, Any]] | None],
    ) -> None:
        """Run functions under permits.

        ``direct`` returns the coroutine function that does what a function does, None if there is
        none.
        """
        self._permit = permit
        self._direct = direct
        self.execute = _Method(self._execute)
        self.ping = _Method(self._ping)

    async def _ping(self) -> bool:
        return True

    async def _execute(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        direct = self._direct(fn)
        if direct is not None:
            return await direct(*args, **kwargs)
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as held:
            permit = self._permit()
            if permit is not None:
                await held.enter_async_context(permit)

            def give_up() -> None:
                asyncio.run_coroutine_threadsafe(held.aclose(), loop).result()

            context = copy_context()
            context.run(_give_up_permit.set, give_up)
            return await in_daemon_thread(partial(context.run, fn, *args, **kwargs))


class _Method:
    def __init__(self, run: Callable[..., Coroutine[Any, Any, Any]]) -> None:
        self._run = run

    def remote(self, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        """Begin at once, as Ray does."""
        return asyncio.ensure_future(self._run(*args, **kwargs))
