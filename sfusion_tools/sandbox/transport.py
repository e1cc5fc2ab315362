"""How requests reach a sandbox: one method that returns an answer or raises one of the errors below.

    TransportError
    ├── NotConnected       nothing was sent
    │   └── ProxyRefused   by a proxy that did not open a tunnel
    ├── ConnectionLost     it ended before the answer did
    ├── OutOfTime          no complete answer in time
    ├── BrokenAnswer       the body broke off or is garbled
    └── NotHttp            what came is no HTTP, or what was to be sent would not be

There are two transports, both on aiohttp, which is imported when the first client is made.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple, Self
from weakref import ref

from sfusion_tools.deadlines import Deadlines
from sfusion_tools.errors import ConfigError
from sfusion_tools.outcome import Outcome
from sfusion_tools.runtime import LoopResource, LoopScope

logger = logging.getLogger(__name__)

SWITCH = "SFUSION_TRANSPORT"


class TransportError(Exception):
    """Raised instead of an answer."""

    outcome = Outcome.UNREACHABLE
    may_have_run = True
    """True if the program may have been executed."""
    transient = True
    """True if another attempt may help."""


class NotConnected(TransportError):
    may_have_run = False


class ProxyRefused(NotConnected):
    def __init__(self, text: str, *, transient: bool) -> None:
        super().__init__(text)
        self.transient = transient


class ConnectionLost(TransportError):
    pass


class OutOfTime(TransportError):
    outcome = Outcome.TRANSPORT_TIMEOUT


class BrokenAnswer(TransportError):
    outcome = Outcome.BAD_RESPONSE


class NotHttp(TransportError):
    outcome = Outcome.BAD_RESPONSE
    transient = False


class Address(NamedTuple):
    """Where requests go, and how."""

    url: str
    label: str
    """The redacted URL."""
    proxy: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


class Answer(NamedTuple):
    """An answer of HTTP."""

    status: int
    headers: Mapping[str, str]
    """Their names in any case."""
    body: bytes
    whole: bool
    """False if the body broke off, or is longer than was wanted."""


class Transport(LoopResource):
    """One loop's connections, shared by all its clients: some trainers make a new tool for every trajectory."""

    def __init__(self, deadlines: Deadlines) -> None:
        self.deadlines = deadlines
        self._in_use = 0
        self._users: dict[int, ref[object]] = {}

    async def send(self, address: Address, body: bytes, seconds: float, most: int) -> Answer:
        """Post a body and return the answer, with about ``most`` bytes at most; raise nothing but TransportErrors."""
        raise NotImplementedError

    @classmethod
    def of(cls, scope: LoopScope, user: object) -> Self:
        """Return the loop's transport, opened on first use; it stays open at least until the user leaves."""
        transport = scope.get(cls, lambda: cls(Deadlines.of(scope)))
        users, number = transport._users, id(user)
        if number not in users:
            users[number] = ref(user, lambda _: users.pop(number, None))
        return transport

    @classmethod
    async def leave(cls, scope: LoopScope, user: object) -> None:
        """Stop using the loop's transport; the last user to leave closes it."""
        transport = dict(scope.items()).get(cls)
        if not isinstance(transport, cls):
            return
        transport._users.pop(id(user), None)
        if not transport._users and not transport._in_use:
            scope.drop(transport)
            await transport.aclose()


def chosen_transport() -> type[Transport]:
    """Return the transport that SFUSION_TRANSPORT names, else the fast one where it was tested."""
    wanted = os.environ.get(SWITCH, "")
    if wanted not in ("", "public", "fast"):
        raise ConfigError(f"{SWITCH} must be public, fast or not set; found {wanted!r}")
    if wanted != "public":
        fast, problem = _fast_transport(wanted == "fast")
        if fast is not None:
            return fast
        if wanted:
            raise ConfigError(f"{SWITCH} is fast, but {problem}")
    from sfusion_tools.sandbox.public_transport import PublicTransport

    return PublicTransport


@cache
def _fast_transport(forced: bool) -> tuple[type[Transport] | None, str]:
    """Return the fast transport, unless it cannot be used; then the reason, which is logged once."""
    try:
        from sfusion_tools.sandbox.fast_transport import FastTransport, missing, untested
    except ImportError as error:
        problem = str(error)
    else:
        problem = missing() or ("" if forced else untested())
        if not problem:
            return FastTransport, ""
    if not forced:
        logger.info("calls use aiohttp's ClientSession: %s", problem)
    return None, problem
