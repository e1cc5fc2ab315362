"""The HTTP server under a fake: aiohttp's parser, uvicorn's bytes, and faults that really happen at the socket.

    server = WireServer(WireApp(handler))        # async handler(request) -> Answer
    await server.start()                         # an ephemeral loopback port
    ... server.url ...
    await server.stop()

Give ``rules`` (or call ``set_faults``) for faults and ``journal`` to hear what happens. ``crash``, ``restart``,
``wedge`` and ``unwedge`` do by hand what faults do by rule.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Literal

from aiohttp import HttpVersion10, StreamReader, web

from sfusion.fakes.errors import WireError
from sfusion.fakes.faults import Attempt, Close, Crash, Delay, FaultPlan, Hang, Reset, Rule, Strike, Wedge
from sfusion.fakes.wire.app import App, Request, Subject, parse_target
from sfusion.fakes.wire.connection import Connection, written
from sfusion.fakes.wire.delivery import Delivery
from sfusion.fakes.wire.exchange import Exchange, Words, asked_to_wait
from sfusion.fakes.wire.ledger import Ledger
from sfusion.fakes.wire.listener import Listener
from sfusion.fakes.wire.message import invalid_request
from sfusion.fakes.wire.parking import Parking

Journal = Callable[[dict[str, Any]], None]

_LOG = logging.getLogger("sfusion.fakes")
_NO_LIMIT = 1 << 30
_KEEP = written(keep_alive=True)
_END = written(keep_alive=False)


class WireServer:
    """Serves one app on one address, on the running loop."""

    def __init__(
        self,
        app: App,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        rules: Iterable[Rule] = (),
        seed: int = 0,
        journal: Journal | None = None,
        access_log: Callable[[str], None] | None = None,
        keep_alive: float = 5.0,
        ledger: Ledger | None = None,
        words: Words | None = None,
        whole_body: int | None = None,
    ) -> None:
        """``whole_body``: of longer bodies only so many bytes are read before the request is handled."""
        self.app = app
        self.ledger = ledger or Ledger()
        self.words = words or Words()
        self._whole_body = whole_body
        self.journal = journal
        self.plan = FaultPlan(rules, seed=seed)
        self.wedged_by: str | None = None
        self.ping_alive = True
        self._access_log = access_log
        self._keep_alive = keep_alive
        self._listener = Listener(host, port)
        self._manager: web.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._background: set[asyncio.Task[Any]] = set()
        self._hanging = Parking()
        self._wedged = Parking()
        self._stopping = False
        self._timers: list[asyncio.TimerHandle] = []
        self._others: dict[str, int] = {}

    # -- life of the server --

    async def start(self) -> WireServer:
        """Listen; the server is ready when this returns."""
        self.attach()
        await self._listener.open(self.protocol)
        return self

    def attach(self) -> None:
        """Get ready without listening, for connections that come through ``protocol`` (in-memory transports)."""
        loop = asyncio.get_running_loop()
        self._stopping = False
        self.plan.started = loop.time()
        self._manager = web.Server(self._handle, request_factory=self._make_request)

    def protocol(self) -> Connection:
        """The protocol for one more connection."""
        if self._manager is None:
            raise WireError("the server has not been started: call start() or attach() first")
        return Connection(
            self._manager,
            self,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=self._keep_alive,
            access_log=None,
            auto_decompress=False,
            max_line_size=_NO_LIMIT,
            max_field_size=_NO_LIMIT,
            max_headers=_NO_LIMIT,
        )

    async def stop(self, grace: float = 5.0) -> None:
        """Stop listening, let requests in flight finish for ``grace`` seconds, then cut them off."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._listener.close(forget_port=True)
        self._stopping = True
        self._hanging.wake_all()
        self._wedged.wake_all()
        manager, self._manager = self._manager, None
        if manager is None:
            return
        manager.pre_shutdown()
        tasks = self._tasks | self._background
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        await manager.shutdown(timeout=0.1)

    @property
    def port(self) -> int:
        """The port, also while the server is down after a crash."""
        return self._listener.port

    @property
    def url(self) -> str:
        """``http://host:port``, without a slash at the end."""
        return f"http://{self._listener.address}"

    @property
    def running(self) -> bool:
        """Does it listen?"""
        return self._listener.listening

    def now(self) -> float:
        """The loop's time."""
        return asyncio.get_running_loop().time()

    # -- things that go wrong --

    def set_faults(self, rules: Iterable[Rule], *, seed: int | None = None) -> None:
        """Replace all rules; their clocks and counters start now."""
        if seed is not None:
            self.plan.seed = seed
        self.plan.replace(rules, started=self.now())

    def crash(self, *, restart_after: float | None = None) -> None:
        """Die: the port is closed, every connection is reset, what runs is broken off."""
        self._listener.close()
        self.note("crash", restart_after=restart_after)
        current = asyncio.current_task()
        for connection in self._manager.connections if self._manager is not None else ():
            if isinstance(connection, Connection):
                connection.reset()
        for task in self._tasks | self._background:
            if task is not current:
                task.cancel()
        self.unwedge()
        if restart_after is not None:
            loop = asyncio.get_running_loop()
            self._timers.append(loop.call_later(restart_after, lambda: self.keep(self.restart())))

    async def restart(self) -> None:
        """Listen again on the same port after a crash."""
        if self._manager is None or self._listener.listening:
            return
        await self._listener.open(self.protocol)
        self.note("restart")

    def wedge(
        self, *, ping: Literal["alive", "dead"] = "alive", seconds: float | None = None, rule: str = "wedge"
    ) -> None:
        """From now on accept and never answer."""
        self.wedged_by = rule
        self.ping_alive = ping == "alive"
        self.note("wedge", rule=rule, ping=ping)
        if seconds is not None:
            self._timers.append(asyncio.get_running_loop().call_later(seconds, self.unwedge))

    def unwedge(self) -> None:
        """Answer again; requests that still wait are answered now."""
        if self.wedged_by is not None:
            self.wedged_by = None
            self._wedged.wake_all()
            self.note("unwedge")

    async def hang(self, connection: Connection, seconds: float | None = None) -> None:
        """Wait until the client is gone, the time is over or the server stops."""
        if not self._stopping:
            await self._hanging.wait(connection, seconds)

    async def hang_wedged(self, connection: Connection) -> bool:
        """Wait until the server is no longer wedged (True), or the client is gone or the server stops."""
        while self.wedged_by is not None and not connection.lost and not self._stopping:
            await self._wedged.wait(connection)
        return not connection.lost and not self._stopping

    # -- connections --

    def connected(self, connection: Connection) -> None:
        """A client has connected."""
        self.ledger.connections += 1
        if not self.plan.concerns("connect"):
            return
        attempt = Attempt(call=f"connection-{self.ledger.connections}", in_flight=self.ledger.in_flight + 1)
        for strike in self.plan.fate(attempt).at("connect", self.now()):
            self.ledger.strike(strike.rule)
            self.note(
                "strike",
                call=attempt.call,
                attempt=1,
                rule=strike.rule,
                phase="connect",
                kind=strike.action.kind,
                code_ran="no",
            )
            self._strike_connection(connection, strike)

    def _strike_connection(self, connection: Connection, strike: Strike) -> None:
        loop = asyncio.get_running_loop()
        match strike.action:
            case Reset():
                connection.reset()
            case Close():
                connection.finish()
            case Hang(seconds=seconds):
                connection.deafen()
                if seconds is not None:
                    loop.call_later(seconds, connection.finish)
            case Delay(delay=delay):
                connection.hold()
                loop.call_later(delay.sample(strike.draw), connection.resume)
            case Crash(restart_after=restart_after):
                self.crash(restart_after=restart_after)
            case Wedge(ping=ping, seconds=seconds):
                self.wedge(ping=ping, seconds=seconds, rule=strike.rule)

    def keep(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something beside the requests; it ends with the server at the latest."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _LOG.error("a background task of the fake failed", exc_info=task.exception())

    def _make_request(
        self, message: Any, payload: Any, protocol: Any, writer: Any, task: asyncio.Task[None]
    ) -> web.BaseRequest:
        protocol.message = message
        # The real server has no limit on the size of a body.
        return web.BaseRequest(message, payload, protocol, writer, task, asyncio.get_running_loop(), client_max_size=0)

    # -- requests --

    async def _handle(self, raw: web.BaseRequest) -> web.StreamResponse:
        connection = raw.protocol
        assert isinstance(connection, Connection)
        self.ledger.requests += 1
        message = connection.message
        method = message.method
        if method == "CONNECT":
            self._refuse(connection)
            return _END
        path, query = parse_target(message.path)
        http_1_0 = message.version == HttpVersion10
        request = Request(method, path, query, message.headers, http_1_0, self._listener.address)
        request.gone = connection.gone
        request.target = message.path
        app = self.app
        if app.reads_body(request) and not await self._read_body(raw, request, connection):
            return _END
        subject = app.describe(request)
        close = request.wants_close
        delivery = connection.delivery
        if close or method == "HEAD" or delivery is None:
            delivery = Delivery(connection, head_only=method == "HEAD", announce_close=close and not http_1_0)
            if not close and method != "HEAD":
                connection.delivery = delivery
        if subject is None:
            status = await self._serve_plainly(request, delivery)
        else:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                status = await self._follow(connection, request, subject, delivery)
            finally:
                self._tasks.discard(task)
        if self._access_log is not None:
            self._log_access(raw, status)
        if status == 0 or close:
            return _END
        return _KEEP

    async def _follow(self, connection: Connection, request: Request, subject: Subject, delivery: Delivery) -> int:
        """Serve a request that faults, ledger and journal concern."""
        app, ledger, call = self.app, self.ledger, subject.call
        if not subject.work:
            self._others[call] = attempt = self._others.get(call, 0) + 1
            return await Exchange(self, connection, request, subject, attempt, delivery).live()
        attempt = ledger.arrive(call)
        exchange = Exchange(self, connection, request, subject, attempt, delivery)
        status = 0
        if self.journal is not None:
            exchange.note("arrived", path=request.path, in_flight=ledger.in_flight)
        try:
            turned_away = await app.admit(request, subject)
            if turned_away is not None:
                exchange.retry_after = asked_to_wait(turned_away)
                await delivery.send(turned_away)
                status = turned_away.status
                return status
            try:
                status = await exchange.live()
            finally:
                app.leave(subject)
            return status
        finally:
            ledger.leave(call, status)
            if self.journal is not None:
                event = "answered" if status else "unanswered"
                asked = {} if exchange.retry_after is None else {"retry_after": exchange.retry_after}
                exchange.note(event, status=status, client_gone=connection.lost, **asked)

    async def _serve_plainly(self, request: Request, delivery: Delivery) -> int:
        """Serve what no fault concerns."""
        try:
            answer = await self.app.answer(request, _NOBODY)
        except Exception as error:  # a bug in a fake must look like a bug in the real server
            self.log_failure(error)
            answer = self.app.failure(error)
        await delivery.send(answer)
        return answer.status

    async def _read_body(self, raw: web.BaseRequest, request: Request, connection: Connection) -> bool:
        """Read the whole body; False when it was no HTTP or the client left."""
        expect = request.headers.get("Expect")
        if expect is not None and expect.lower() == "100-continue" and connection.transport is not None:
            connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            content = raw.content
            # Most bodies have come with their head; then there is nothing to wait for.
            if content.is_eof():
                request.body = content.read_nowait(-1)
            elif self._whole_body is None:
                request.body = await raw.read()
            else:
                await self._read_some(content, request, self._whole_body)
        except Exception:
            # aiohttp has several types for it, not all public; in every case the bytes are not usable.
            self._refuse(connection)
            return False
        return True

    async def _read_some(self, content: StreamReader, request: Request, enough: int) -> None:
        """Read a body whole unless it is long; then leave the rest for the app."""
        pieces = []
        size = 0
        while size < enough and (piece := await content.readany()):
            pieces.append(piece)
            size += len(piece)
        request.body = b"".join(pieces)
        if not content.at_eof():
            request.rest = content.iter_any()

    def _refuse(self, connection: Connection) -> None:
        if connection.transport is not None:
            connection.transport.write(invalid_request())

    def note(self, event: str, **more: Any) -> None:
        """Tell the journal."""
        if self.journal is not None:
            self.journal({"at": self.now(), "source": "server", "event": event, **more})

    def log_failure(self, error: Exception) -> None:
        """A fake has a bug: say so where the operator looks."""
        _LOG.error("the fake failed to answer", exc_info=error)

    def _log_access(self, raw: web.BaseRequest, status: int) -> None:
        if self._access_log is not None:
            shown = status or "no answer"
            self._access_log(f'{raw.remote} - "{raw.method} {raw.raw_path.partition("?")[0]}" {shown}')

    async def __aenter__(self) -> WireServer:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await self.stop()


class _Nobody:
    """Execution that nobody follows."""

    def started(self) -> None:
        """Not followed."""

    def finished(self) -> None:
        """Not followed."""

    def failed(self, event: str, **more: Any) -> None:
        """Not followed."""


_NOBODY = _Nobody()
