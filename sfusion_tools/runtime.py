"""What this process has opened, by event loop.

It ends with its loop, and nothing of it passes to a forked child. Tools and clients come and go:
some trainers make one for every trajectory. Sessions and limiter clients belong to the event loop
that uses them, and what several loops share, such as the state of the sandboxes, belongs to the
process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any, TypeVar
from weakref import ref

logger = logging.getLogger(__name__)

_ATTRIBUTE = "_sfusion_scope"


class LoopResource:
    """Something that belongs to one event loop; by default there is nothing to free."""

    async def aclose(self) -> None:
        """Close it, in its loop."""
        self.abandon()

    def abandon(self) -> None:
        """Free what can be freed without the loop, which was closed."""

    def forget(self) -> None:
        """In a forked child: let go of what the parent goes on using."""


R = TypeVar("R", bound=LoopResource)
T = TypeVar("T")


class LoopScope:
    """What this process has opened in one event loop.

    The loop refers to its scope, and the process only weakly: a loop that is dropped without being
    closed takes its scope along.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, orphans: deque[LoopScope]) -> None:
        self.loop = loop
        self._orphans = orphans
        self._opened: dict[object, LoopResource] = {}
        # Its first step does not wait, so no loop is needed.
        self._guard = self._close_before_loop_ends()
        with suppress(StopIteration):
            self._guard.__anext__().__await__().send(None)

    async def _close_before_loop_ends(self) -> AsyncGenerator[None]:
        """Close everything when the loop shuts down.

        So users of a tool need not close anything. ``asyncio.run`` closes every live asynchronous
        generator after cancelling the tasks and before closing the loop.
        """
        try:
            yield
        finally:
            await self.aclose()

    def get(self, key: object, make: Callable[[], R]) -> R:
        """Return the resource of this key.

        It is made on first use and closed at the end of the loop.
        """
        found: Any = self._opened.get(key)
        if found is None:
            found = self._opened[key] = make()
        return found  # type: ignore[no-any-return] # what was made for this key

    def adopt(self, resource: LoopResource) -> None:
        """Own a resource that was made elsewhere."""
        if all(opened is not resource for opened in self._opened.values()):
            self._opened[resource] = resource

    def drop(self, resource: LoopResource) -> None:
        """Stop owning a resource that was closed."""
        self._opened = {
            key: opened for key, opened in self._opened.items() if opened is not resource
        }

    def items(self) -> list[tuple[object, LoopResource]]:
        """Everything that is open, with its key."""
        return list(self._opened.items())

    async def aclose(self) -> None:
        """Close everything in the reverse order of its opening.

        If that is broken off, abandon the rest.
        """
        try:
            while self._opened:
                _, resource = self._opened.popitem()
                try:
                    await resource.aclose()
                except Exception:
                    logger.exception("%s could not be closed", type(resource).__name__)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Free everything without the loop, which then no longer refers to this scope."""
        while self._opened:
            _, resource = self._opened.popitem()
            try:
                resource.abandon()
            except Exception:
                logger.exception("%s could not be abandoned", type(resource).__name__)
        with suppress(AttributeError):
            delattr(self.loop, _ATTRIBUTE)

    def forget(self) -> list[LoopResource]:
        """In a forked child: stop owning everything, and return it."""
        opened = list(self._opened.values())
        self._opened = {}
        for resource in opened:
            resource.forget()
        return opened

    def __del__(self) -> None:
        # The garbage collector may run anywhere, also where a lock is held that abandoning needs.
        if self._opened:
            self._orphans.append(self)


class Runtime:
    """The owner of all that the tools of one process share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shared: dict[object, Any] = {}
        self._scopes: set[ref[LoopScope]] = set()
        self._orphans: deque[LoopScope] = deque()
        self._inherited: list[object] = []

    def scope(self) -> LoopScope:
        """Return the scope of the running loop.

        This also frees what loops have left that ended without closing it.
        """
        loop = asyncio.get_running_loop()
        scope: LoopScope | None = getattr(loop, _ATTRIBUTE, None)
        if scope is None:
            scope = LoopScope(loop, self._orphans)
            setattr(loop, _ATTRIBUTE, scope)
            with self._lock:
                self._scopes.add(ref(scope))
        if len(self._scopes) > 1 or self._orphans:
            self.sweep()
        return scope

    def shared(self, key: object, make: Callable[[], T]) -> T:
        """Return the value that all loops and threads of this process share under this key."""
        with self._lock:
            if key not in self._shared:
                self._shared[key] = make()
            value: T = self._shared[key]
        return value

    def sweep(self) -> None:
        """Free what belongs to loops that were closed, or collected, without closing it."""
        ended = []
        with self._lock:
            for known in tuple(self._scopes):
                scope = known()
                if scope is None:
                    self._scopes.remove(known)
                elif scope.loop.is_closed():
                    self._scopes.remove(known)
                    ended.append(scope)
            while self._orphans:
                ended.append(self._orphans.popleft())
        for scope in ended:
            scope.abandon()

    def _forget(self) -> None:
        # Another thread may have held the lock at the fork.
        self._lock = threading.Lock()
        self._shared.clear()
        # Never finalised in this process: finalisers would act on a selector and a limiter that the
        # parent uses.
        self._inherited += self._orphans
        self._orphans.clear()
        for known in self._scopes:
            if (scope := known()) is not None:
                self._inherited += scope.forget()
        self._scopes.clear()


runtime = Runtime()
"""The one of this process."""

if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=runtime._forget)
