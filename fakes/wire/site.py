"""A new connection as the site of a fault, before anything has been read from it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sfusion.fakes.faults import ContentFault, FaultError, Status
from sfusion.fakes.faults.action import Ping
from sfusion.fakes.wire.connection import Connection
from sfusion.fakes.wire.core import ServerCore


class ConnectionSite:
    """Strikes without waiting: what takes time is left to timers, because there is no request yet that could wait.

    One site serves all strikes of a connection: delays add up, and what follows them happens when they are over.
    """

    def __init__(self, core: ServerCore, connection: Connection) -> None:
        self._core = core
        self._connection = connection
        self._delay = 0.0
        self._release: asyncio.TimerHandle | None = None
        self.rule = ""
        """The rule that strikes."""

    def sleep(self, seconds: float) -> None:
        self._delay += seconds
        if self._release is None:
            self._connection.hold_input()
        else:
            self._release.cancel()
        self._release = asyncio.get_running_loop().call_later(self._delay, self._connection.release_input)

    def hang(self, seconds: float | None) -> None:
        self._connection.ignore_input()
        if seconds is not None:
            asyncio.get_running_loop().call_later(self._delay + seconds, self._connection.finish)

    def reset(self) -> None:
        self._break(self._connection.reset)

    def close(self) -> None:
        self._break(self._connection.finish)

    def crash(self, restart_after: float | None) -> None:
        self._break(lambda: self._core.crash(restart_after=restart_after))

    def _break(self, act: Callable[[], None]) -> None:
        self._connection.ignore_input()  # what was held back would be released at the very moment at which it breaks
        self._after_delay(act)

    def wedge(self, ping: Ping, seconds: float | None) -> None:
        rule = self.rule
        self._after_delay(lambda: self._core.wedge(ping=ping, seconds=seconds, rule=rule))

    def _after_delay(self, act: Callable[[], None]) -> None:
        if self._delay > 0:
            asyncio.get_running_loop().call_later(self._delay, act)
        else:
            act()

    def active_for(self) -> float:
        return self._core.now() - self._core.plan.started

    def respond(self, action: Status | ContentFault) -> None:
        raise FaultError(f"{action.kind} cannot strike in phase 'connect': there is no request yet to answer")

    spoil = respond
