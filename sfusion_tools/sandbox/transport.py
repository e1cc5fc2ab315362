"""How requests reach a sandbox: one method that returns an answer or raises a TransportError."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple, Self
from weakref import WeakSet

from sfusion_tools.outcome import Outcome
from sfusion_tools.runtime import LoopResource, LoopScope


class TransportError(Exception):
    """Raised instead of an answer."""

    def __init__(self, outcome: Outcome, text: str, *, may_have_run: bool = True, transient: bool = True) -> None:
        super().__init__(text)
        self.outcome = outcome
        self.may_have_run = may_have_run
        """False if nothing was sent."""
        self.transient = transient
        """True if another attempt may help."""


class Address(NamedTuple):
    """Where requests go, and how."""

    url: str
    label: str
    """The redacted URL."""
    proxy: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


class Response(NamedTuple):
    """An answer of HTTP."""

    status: int
    headers: Mapping[str, str]
    """Their names in any case."""
    body: bytes
    whole: bool
    """False if the body broke off, or is longer than was wanted."""


class HttpTransport(LoopResource):
    """One loop's connections, shared by all its clients: some trainers make a new tool for every trajectory."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._in_use = 0
        self._users: WeakSet[object] = WeakSet()

    async def send(self, address: Address, body: bytes, seconds: float, most: int) -> Response:
        """Post a body and return the answer, with about ``most`` bytes at most; raise nothing but TransportErrors."""
        raise NotImplementedError

    @classmethod
    def of(cls, scope: LoopScope, user: object) -> Self:
        """Return the loop's transport, opened on first use; it stays open at least until the user leaves."""
        transport = scope.get(cls, lambda: cls(scope.loop))
        transport._users.add(user)
        return transport

    @classmethod
    async def leave(cls, scope: LoopScope, user: object) -> None:
        """Stop using the loop's transport; the last user to leave closes it."""
        transport = dict(scope.items()).get(cls)
        if not isinstance(transport, cls):
            return
        transport._users.discard(user)
        if not transport._users and not transport._in_use:
            scope.drop(transport)
            await transport.aclose()
