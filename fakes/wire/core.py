"""What the requests of one server share: ledger, fault plan, journal, and whether the server is wedged."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sfusion.fakes.faults import FaultPlan, Rule
from sfusion.fakes.faults.action import Ping
from sfusion.fakes.wire.app import App
from sfusion.fakes.wire.connection import Connection
from sfusion.fakes.wire.ledger import Ledger
from sfusion.fakes.wire.message import Answer
from sfusion.fakes.wire.request_log import RequestLog


class Parking:
    """A place to wait that costs one future per request and no task."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    async def wait(self, connection: Connection, seconds: float | None = None) -> None:
        """Wait until the client disconnects, ``seconds`` have passed, or ``wake_all`` is called."""
        if connection.lost:
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        gone = connection.gone()

        def wake(_: object = None) -> None:
            if not waiter.done():
                waiter.set_result(None)

        self._waiters.add(waiter)
        gone.add_done_callback(wake)
        timer = loop.call_later(seconds, wake) if seconds is not None else None
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
            gone.remove_done_callback(wake)
            if timer is not None:
                timer.cancel()

    def wake_all(self) -> None:
        for waiter in list(self._waiters):
            if not waiter.done():
                waiter.set_result(None)


EventSink = Callable[[dict[str, Any]], None]
Ran = Literal["no", "began", "ended"]

_LOG = logging.getLogger("sfusion.fakes")


@dataclass(frozen=True, slots=True)
class WorkEvents:
    """What the journal calls the work that is done for a request."""

    started: str = "started"
    finished: str = "finished"
    ran: Mapping[Ran, str] = field(default_factory=lambda: {"no": "no", "began": "began", "ended": "ended"})
    """How much of the code has run, as far as the server knows."""


class ServerCore(ABC):
    """The state of a server apart from its sockets."""

    def __init__(
        self,
        app: App,
        *,
        rules: Iterable[Rule] = (),
        seed: int = 0,
        journal: EventSink | None = None,
        ledger: Ledger | None = None,
        work_events: WorkEvents | None = None,
    ) -> None:
        self.app = app
        self.routes: frozenset[str] = getattr(app, "paths", frozenset())
        self.ledger = ledger or Ledger()
        self.work_events = work_events or WorkEvents()
        self.journal = journal
        self.plan = FaultPlan(rules, seed=seed)
        self.request_log: RequestLog | None = None
        self.expected_headers: Mapping[str, str] = {}
        """Headers that every request for work should carry; the journal names those that are missing or differ."""
        self.wedged_by: str | None = None
        self.ping_alive = True
        self._background: set[asyncio.Task[Any]] = set()
        self._hanging = Parking()
        self._wedged = Parking()
        self._stopping = False
        self._timers: list[asyncio.TimerHandle] = []
        self.started = 0.0
        """When it began to listen, in the time of its loop."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def note(self, event: str, **more: Any) -> None:
        """Write an event to the journal."""
        if self.journal is not None:
            self.journal({"at": self.now(), "source": "server", "event": event, **more})

    def failure(self, error: Exception) -> Answer:
        """Log a bug of the fake, and answer as the faked server answers a bug of its own."""
        _LOG.error("the fake failed to answer", exc_info=error)
        return self.app.failure(error)

    def keep(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something beside the requests; it is cancelled when the server crashes or stops."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _LOG.error("a background task of the fake failed", exc_info=task.exception())

    def set_faults(self, rules: Iterable[Rule], *, seed: int | None = None) -> None:
        """Replace all rules; their clocks and counters start now."""
        if seed is not None:
            self.plan.seed = seed
        self.plan.replace(rules, started=self.now())

    @abstractmethod
    def crash(self, *, restart_after: float | None = None) -> None:
        """Close the port, reset every connection and cancel what runs."""

    def wedge(self, *, ping: Ping = "alive", seconds: float | None = None, rule: str = "wedge") -> None:
        """From now on accept requests and never answer."""
        self.wedged_by = rule
        self.ping_alive = ping == "alive"
        self.note("wedge", rule=rule, ping=ping)
        if seconds is not None:
            self._timers.append(asyncio.get_running_loop().call_later(seconds, self.unwedge))

    def unwedge(self) -> None:
        """Answer again, also the requests that still wait."""
        if self.wedged_by is not None:
            self.wedged_by = None
            self._wedged.wake_all()
            self.note("unwedge")

    async def hang(self, connection: Connection, seconds: float | None = None) -> None:
        """Wait until the client disconnects, ``seconds`` have passed or the server stops."""
        if not self._stopping:
            await self._hanging.wait(connection, seconds)

    async def hang_wedged(self, connection: Connection) -> bool:
        """Wait while the server is wedged; False when the client disconnected or the server stops."""
        while self.wedged_by is not None and not connection.lost and not self._stopping:
            await self._wedged.wait(connection)
        return not connection.lost and not self._stopping
