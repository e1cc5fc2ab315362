"""The HTTP server under a fake: aiohttp's parser, uvicorn's bytes, and faults at the socket.

    server = WireServer(WireApp(handler))        # async handler(request) -> Answer
    await server.start()                         # an ephemeral loopback port
    ... server.url ...
    await server.stop()

Pass ``rules`` (or call ``set_faults``) for faults and ``journal`` to receive what happens.
``crash``, ``restart``, ``wedge`` and ``unwedge`` do on call what faults do by rule.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote

from aiohttp import HttpVersion10, StreamReader, web

from ..errors import WireError
from ..faults import Arrival, ContentFault, FaultError, Rule, Status
from ..faults.action import Death, Ping
from .access import LONGEST_BODY, Access, is_admin
from .app import AdminVisit, App, Request, Visit, parse_target
from .connection import AlreadySent, Connection
from .core import ServerCore, WorkEvents
from .delivery import Delivery
from .events import EventSink
from .exchange import Exchange
from .ledger import Ledger
from .listener import ListeningPort
from .message import Answer, invalid_request
from .websocket import NORMAL, MessageDelivery, WebSocket


class ConnectionSite:
    """Strikes a connection without waiting.

    What takes time is left to timers, because there is no request yet that could wait. One site
    serves all strikes of a connection: delays add up, and what follows them happens when they are
    over.
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
        self._release = asyncio.get_running_loop().call_later(
            self._delay, self._connection.release_input
        )

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
        # what was held back would be released at the very moment at which it breaks
        self._connection.ignore_input()
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

    def die(self, how: Death) -> None:
        raise FaultError("death cannot strike in phase 'connect': there is no sandbox yet")

    def respond(self, action: Status | ContentFault) -> None:
        raise FaultError(
            f"{action.kind} cannot strike in phase 'connect': there is no request yet to answer"
        )

    spoil = respond


_NO_LIMIT = 1 << 30
"""For aiohttp's limits on lines, fields and headers: uvicorn with httptools has none of these."""
_KEEP_ALIVE = 5.0
"""Seconds after which an idle connection is closed: uvicorn's default."""
_LAST_GRACE = 0.1
"""Seconds for connections to close when nothing is in flight any more (chosen)."""
_SHOWN = "/:@!$&'()*+,;=~"
"""What the access log shows of a path without quoting it."""
_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
"""Methods that the metrics name."""
_KEEP = AlreadySent(keep_alive=True)
_END = AlreadySent(keep_alive=False)
_NO_WEBSOCKET = Answer(status=403, content_type="text/plain")


class WireServer(ServerCore):
    """Serves one app on one address, on the running loop."""

    def __init__(
        self,
        app: App,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        rules: Iterable[Rule] = (),
        seed: int = 0,
        journal: EventSink | None = None,
        access_log: Callable[[str], None] | None = None,
        keep_alive: float = _KEEP_ALIVE,
        ledger: Ledger | None = None,
        work_events: WorkEvents | None = None,
        whole_body: int | None = None,
        access: Access | None = None,
        admin: Callable[[Request], Answer] | None = None,
    ) -> None:
        """``admin`` answers the requests to admin routes.

        ``whole_body``: read no more than this many bytes of a longer body before handling the
        request.
        """
        super().__init__(
            app,
            rules=rules,
            seed=seed,
            journal=journal,
            ledger=ledger,
            work_events=work_events,
        )
        self._whole_body = whole_body
        self.access = access or Access(host)
        self._admin = admin
        self._access_log = access_log
        self._keep_alive = keep_alive
        self._listener = ListeningPort(host, port)
        self._manager: web.Server | None = None
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> WireServer:
        """Listen; the server is ready when this returns."""
        self.attach()
        await self._listener.open(self.protocol)
        return self

    def attach(self) -> None:
        """Get ready without listening, for connections made through ``protocol``.

        In-memory transports are such connections.
        """
        self._stopping = False
        self.started = self.now()
        self.plan.started = self.started
        self._manager = web.Server(self._handle, request_factory=self._make_request)

    def protocol(self) -> Connection:
        """The protocol for one more connection."""
        if self._manager is None:
            raise WireError("the server has not been started: call start() or attach() first")
        return Connection(
            self._manager,
            self._connected,
            self.failure,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=self._keep_alive,
            access_log=None,
            auto_decompress=False,
            max_line_size=_NO_LIMIT,
            max_field_size=_NO_LIMIT,
            max_headers=_NO_LIMIT,
        )

    async def stop(self, grace: float = 5.0) -> None:
        """Stop listening; requests in flight get ``grace`` seconds, then they are cut off."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._listener.close(forget_port=True)
        self._stopping = True
        self._hanging.wake_all()
        self._wedged.wake_all()

        manager = self._manager
        self._manager = None
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
        await manager.shutdown(timeout=_LAST_GRACE)

    @property
    def port(self) -> int:
        """The port, which stays the same while the server is down after a crash."""
        return self._listener.port

    @property
    def url(self) -> str:
        """``http://host:port``, without a slash at the end."""
        return f"http://{self._listener.address}"

    @property
    def open_connections(self) -> int:
        return len(self._manager.connections) if self._manager is not None else 0

    @property
    def running(self) -> bool:
        """True while it listens."""
        return self._listener.listening

    def crash(self, *, restart_after: float | None = None) -> None:
        self._listener.close()
        self.note("crash", restart_after=restart_after)

        connections = self._manager.connections if self._manager is not None else ()
        for connection in connections:
            if isinstance(connection, Connection):
                connection.died = True
                connection.reset()

        current = asyncio.current_task()
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
        self.started = self.now()
        self.note("restart")

    def _connected(self, connection: Connection) -> None:
        self.ledger.connections += 1
        connection.number = next(self._numbers)
        if not self.plan.concerns("connect"):
            return
        call = f"connection-{self.ledger.connections}"
        fate = self.plan.fate(Arrival(call=call, in_flight=self.ledger.in_flight + 1))
        if fate is None:
            return

        site = ConnectionSite(self, connection)
        for strike in fate.at("connect", self.now()):
            self.ledger.strike(strike.rule)
            self.note(
                "strike",
                call=call,
                attempt=1,
                rule=strike.rule,
                phase="connect",
                kind=strike.action.kind,
                code_ran="no",
            )
            site.rule = strike.rule
            strike.action.strike(site, strike.draw)

    def _make_request(
        self, message: Any, payload: Any, protocol: Any, writer: Any, task: asyncio.Task[None]
    ) -> web.BaseRequest:
        protocol.message = message
        loop = asyncio.get_running_loop()
        # By position, as aiohttp calls its own factory. The real server has no limit on the size
        # of a body.
        values = (message, payload, protocol, writer, task, loop)
        return web.BaseRequest(*values, client_max_size=0)

    async def _handle(self, raw: web.BaseRequest) -> web.StreamResponse:
        """Serve one request; aiohttp learns from the result whether the connection lives on."""
        connection = raw.protocol
        assert isinstance(connection, Connection)
        self.ledger.requests += 1
        message = connection.message
        if message.method == "CONNECT":
            connection.write(invalid_request())
            return _END

        request = self._request_of(message, connection)
        refusal = self.access.refusal(request)
        if message.upgrade and refusal is None and _is_websocket(request):
            await self._serve_socket(request, connection)
            return _END

        # uvicorn closes for HTTP/1.0 and for exactly "close".
        close = request.http_1_0 or request.headers.get("Connection") == "close"
        if message.upgrade and refusal is not None:
            close = True
        delivery = Delivery(
            connection,
            head_only=request.method == "HEAD",
            announce_close=close and not request.http_1_0,
        )

        status: int | None
        if refusal is not None:
            await delivery.send(refusal)
            status = refusal.status
            self._count(request, status)
        else:
            status = await self._serve(raw, request, connection, delivery)
            if status is None:
                return _END

        if self._access_log is not None:
            self._access_log(_access_line(raw, request, status))
        connection.message = None
        stays_open = status != 0 and not close and not connection.half_closed
        return _KEEP if stays_open else _END

    async def _serve_socket(self, request: Request, connection: Connection) -> None:
        """Serve the messages of a WebSocket, one after another."""
        conversation = self.app.converse(request)
        if conversation is None or isinstance(conversation, Answer):
            # uvicorn hands these to its WebSocket protocol, where no route takes them.
            answer = conversation or _NO_WEBSOCKET
            await Delivery(connection, head_only=False, announce_close=True).send(answer)
            return
        socket = WebSocket(connection, conversation.leaving)
        socket.open(request)
        delivery = MessageDelivery(socket, connection)
        try:
            opening = conversation.opening()
            if opening is not None:
                await self._converse(connection, opening, delivery)
            while (text := await socket.receive()) is not None:
                visit = conversation.visit(text)
                if visit is None:
                    socket.close(NORMAL)
                    return
                await self._converse(connection, visit, delivery)
        finally:
            conversation.left()

    async def _converse(
        self, connection: Connection, visit: Visit, delivery: MessageDelivery
    ) -> None:
        """Serve one message as a request is served."""
        exchange = Exchange(
            self,
            connection=connection,
            request=visit.request,
            visit=visit,
            delivery=delivery,
        )
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        status = 0
        try:
            status = await exchange.serve()
        finally:
            self._tasks.discard(task)
            if exchange.is_counted:
                self._count(visit.request, status)

    def _request_of(self, message: Any, connection: Connection) -> Request:
        path, query = parse_target(message.path)
        return Request(
            method=message.method,
            path=path,
            query=query,
            headers=message.headers,
            http_1_0=message.version == HttpVersion10,
            address=self._listener.address,
            target=message.path,
            gone=connection.gone,
        )

    async def _serve(
        self,
        raw: web.BaseRequest,
        request: Request,
        connection: Connection,
        delivery: Delivery,
    ) -> int | None:
        """Let the app, or the admin routes, answer a request.

        Return the status that was sent, 0 for none; None if the request never came whole.
        """
        visit: Visit
        if self._admin is not None and is_admin(request.path):
            visit = AdminVisit(request, self._admin)
        else:
            visit = self.app.visit(request)
        if visit.reads_body and not await self._read_body(raw, request, connection):
            return None
        if connection.died:
            return None

        exchange = Exchange(
            self,
            connection=connection,
            request=request,
            visit=visit,
            delivery=delivery,
        )
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        status = 0
        try:
            status = await exchange.serve()
        finally:
            self._tasks.discard(task)
            if exchange.is_counted:
                self._count(request, status)
        return status

    def _count(self, request: Request, status: int) -> None:
        # Clients choose methods and paths; a metric must not grow with what they send.
        method = request.method if request.method in _METHODS else "other"
        route = request.path if request.path in self.routes else "other"
        self.ledger.answer(method, route, status)

    async def _read_body(
        self, raw: web.BaseRequest, request: Request, connection: Connection
    ) -> bool:
        """Read the body; False when it was not HTTP or the client disconnected."""
        expect = request.headers.get("Expect")
        if expect is not None and expect.lower() == "100-continue":
            connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            content = raw.content
            # Most bodies have come with their head; then there is nothing to wait for.
            if content.is_eof():
                request.body = content.read_nowait(-1)
            elif is_admin(request.path):
                await self._read_some(content, request, LONGEST_BODY + 1)
            elif self._whole_body is None:
                request.body = await raw.read()
            else:
                await self._read_some(content, request, self._whole_body)
        except Exception:
            # aiohttp has several types for this, not all public; in every case the bytes are
            # useless.
            connection.write(invalid_request())
            return False
        return True

    async def _read_some(self, content: StreamReader, request: Request, enough: int) -> None:
        """Read a body at once unless it is long; then leave the rest to the app."""
        pieces = []
        size = 0
        while size < enough:
            piece = await content.readany()
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
        request.body = b"".join(pieces)
        if not content.at_eof():
            request.rest = content.iter_any()

    async def __aenter__(self) -> WireServer:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()


def _is_websocket(request: Request) -> bool:
    return request.headers.get("Upgrade", "").lower() == "websocket"


def _access_line(raw: web.BaseRequest, request: Request, status: int) -> str:
    """The line of a request in the access log.

    Neither the query nor the user of a whole URL, which may hold secrets; and no line breaks.
    """
    shown = quote(request.path, safe=_SHOWN)
    return f'{raw.remote} - "{request.method} {shown}" {status or "no answer"}'
