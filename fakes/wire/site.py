"""A new connection as the site of a fault, before anything has been read from it."""

from __future__ import annotations

import asyncio

from sfusion.fakes.faults import ContentFault, Status
from sfusion.fakes.faults.action import Ping
from sfusion.fakes.wire.connection import Connection
from sfusion.fakes.wire.core import ServerCore


class ConnectionSite:
    """Strikes at once: what takes time is left to timers, because there is no request yet that could wait."""

    def __init__(self, core: ServerCore, connection: Connection, rule: str) -> None:
        self._core = core
        self._connection = connection
        self._rule = rule

    def sleep(self, seconds: float) -> None:
        self._connection.hold_input()
        asyncio.get_running_loop().call_later(seconds, self._connection.release_input)

    def hang(self, seconds: float | None) -> None:
        self._connection.ignore_input()
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, self._connection.finish)

    def reset(self) -> None:
        self._connection.reset()

    def close(self) -> None:
        self._connection.finish()

    def crash(self, restart_after: float | None) -> None:
        self._core.crash(restart_after=restart_after)

    def wedge(self, ping: Ping, seconds: float | None) -> None:
        self._core.wedge(ping=ping, seconds=seconds, rule=self._rule)

    def active_for(self) -> float:
        return self._core.now() - self._core.plan.started

    def respond(self, status: Status) -> None:
        raise NotImplementedError("there is no request to answer")

    def spoil(self, action: ContentFault) -> None:
        raise NotImplementedError("there is no answer to change")
