"""What the requests of one server share.

That is the ledger, the fault plan, the journal, the event log, and whether the server is wedged.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from sfusion_tools._loops import resolve
from sfusion_tools.event_lines import call_line
from sfusion_tools.event_log import LINE, EventLogSettings, Facts, open_event_log
from sfusion_tools.outcome import Outcome
from sfusion_tools.record import Attempt
from sfusion_tools.runtime import runtime
from sfusion_tools.sandbox.answer import read_answer
from sfusion_tools.sandbox.retry import retry_after

from ..errors import SlowPattern
from ..faults import FaultPlan, Rule
from ..faults.action import Ping
from .app import App
from .connection import Connection
from .events import AttemptNote, EventSink, Ran, ServerEvent
from .ledger import Ledger
from .message import Answer


class Parking:
    """A place to wait that costs one future per request and no task."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    async def wait(self, connection: Connection, seconds: float | None = None) -> None:
        """Wait until the client disconnects, ``seconds`` have passed, or ``wake_all`` is called."""
        if connection.lost:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        ends = {waiter, connection.gone()}
        try:
            await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waiters.discard(waiter)

    def wake_all(self) -> None:
        for waiter in list(self._waiters):
            resolve(waiter, None)


EventLogPath = EventLogSettings | str | Path


class ServedRequest(NamedTuple):
    """A request for work that is over, as the event log needs it."""

    call: str
    began: float
    """When it arrived, in unix time."""
    seconds: float
    sent: int
    """Bytes of its body."""
    answer: Answer | None
    """None if no answer was sent."""
    fault: str | None
    """The first rule that struck."""
    client_gone: bool
    spoiled: bool
    """The body of the answer was changed, cut or delayed on its way."""
    runs_code: bool = True
    """It was sent to a route of a sandbox, so the answer says how a program ended."""


class RequestLog:
    """Writes requests for work to the event log of this process, as the tool writes its calls.

    ``sandbox`` returns the address that it names.
    """

    def __init__(self, log: EventLogPath, sandbox: Callable[[], str]) -> None:
        settings = log if isinstance(log, EventLogSettings) else EventLogSettings(path=str(log))
        self._log = open_event_log(settings)
        self._sandbox = sandbox

    def ended(self, request: ServedRequest) -> None:
        """Write a request that is over."""
        log = self._log.of(runtime.scope())
        if log is None:
            return
        size = LINE
        if request.answer is not None:
            size += len(request.answer.body)
        log.add((_line, self._sandbox(), request), size)

    def flush(self) -> None:
        self._log.flush()


def _line(worker: str, facts: Facts) -> bytes:
    """Make the line of a request when it is written, which is later than when it ended."""
    _, sandbox, request = facts  # as `ended` adds them; the first is this function
    attempt = Attempt(
        number=1,
        endpoint=sandbox,
        outcome=Outcome.of_status(None, client_gone=request.client_gone),
        seconds=request.seconds,
        sent=request.sent,
        fault=request.fault,
    )
    if request.answer is not None:
        _add_answer(attempt, request, request.answer)
    return call_line(
        source="server",
        worker=worker,
        call=request.call,
        began=request.began,
        seconds=request.seconds,
        outcome=attempt.outcome,
        attempts=[attempt],
    )


def _add_answer(attempt: Attempt, request: ServedRequest, answer: Answer) -> None:
    """Add to an attempt what its answer says."""
    attempt.status = answer.status
    attempt.received = len(answer.body) or answer.length or 0
    headers = {name.title(): value for name, value in answer.headers}
    attempt.retry_after = retry_after(headers, request.began + request.seconds)
    attempt.outcome = Outcome.of_status(answer.status)

    # Only where a sandbox wrote the body, it is at hand, and it is what the client got.
    changed = request.spoiled or answer.stream is not None or "Content-Encoding" in headers
    if answer.status == 200 and request.runs_code and not changed:
        reading = read_answer(answer.status, answer.content_type or "", answer.body)
        attempt.outcome = reading.outcome
        attempt.execution_time = reading.execution_time


_LOG = logging.getLogger("sfusion.fakes")


@dataclass(frozen=True, slots=True)
class WorkEvents:
    """What the journal calls the work that is done for a request."""

    started: str = "started"
    finished: str = "finished"
    ran: Mapping[Ran, str] = field(
        default_factory=lambda: {"no": "no", "began": "began", "ended": "ended"}
    )
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
        """Headers that every request for work should carry.

        The journal names those that are missing or differ.
        """
        self.wedged_by: str | None = None
        """The rule because of which no request is answered."""
        self.ping_alive = True
        """Pings are answered although the server is wedged."""
        self._background: set[asyncio.Task[Any]] = set()
        self._hanging = Parking()
        self._wedged = Parking()
        self._stopping = False
        self._timers: list[asyncio.TimerHandle] = []
        self.started = 0.0
        """When it began to listen, in the time of its loop."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def note(self, event: str, **more: Unpack[AttemptNote]) -> None:
        """Write an event to the journal."""
        if self.journal is not None:
            noted: ServerEvent = {
                "at": self.now(),
                "source": "server",
                "event": event,
                **more,
            }
            self.journal(noted)

    def failure(self, error: Exception) -> Answer:
        """Log a bug of the fake, and answer as the faked server answers a bug of its own."""
        _LOG.error("the fake failed to answer", exc_info=error)
        if isinstance(error, SlowPattern):
            self.note("slow_pattern", why=str(error))
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

    def wedge(
        self,
        *,
        ping: Ping = "alive",
        seconds: float | None = None,
        rule: str = "wedge",
    ) -> None:
        """From now on accept requests and never answer."""
        self.wedged_by = rule
        self.ping_alive = ping == "alive"
        self.note("wedge", rule=rule, ping=ping)
        if seconds is not None:
            timer = asyncio.get_running_loop().call_later(seconds, self.unwedge)
            self._timers.append(timer)

    def unwedge(self) -> None:
        """Answer again, also the requests that still wait."""
        if self.wedged_by is None:
            return
        self.wedged_by = None
        self._wedged.wake_all()
        self.note("unwedge")

    async def hang(self, connection: Connection, seconds: float | None = None) -> None:
        """Wait until the client disconnects, ``seconds`` have passed or the server stops."""
        if not self._stopping:
            await self._hanging.wait(connection, seconds)

    async def hang_wedged(self, connection: Connection) -> bool:
        """Wait while the server is wedged.

        Return False when the client disconnected or the server stops.
        """
        while self.wedged_by is not None and not connection.lost and not self._stopping:
            await self._wedged.wait(connection)
        return not connection.lost and not self._stopping
