"""What a fake plugs into the server: an app that opens one visit per request."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, Unpack
from urllib.parse import quote, unquote

from sfusion_tools.bounded_input import nesting

from ..call_mark import CALL_MARK
from .message import Answer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator

    from ..faults import ContentFault
    from ..faults.rule import Operation
    from .events import EventNote


@dataclass(slots=True)
class Request:
    """One HTTP request.

    ``headers`` is case-insensitive; ``body`` is empty until it has been read.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    http_1_0: bool = False
    address: str = ""
    """The server's own host:port, for redirects to clients that sent no Host header."""
    target: str = ""
    """Path and query as they were sent."""
    gone: Callable[[], asyncio.Future[None]] | None = None
    """Returns a future that is done when the client has disconnected.

    For apps that then stop working.
    """
    body: bytes = b""
    rest: AsyncIterator[bytes] | None = None
    """What follows ``body``, on servers that do not read long bodies at once."""

    @property
    def host(self) -> str:
        """The Host header, or the server's own address."""
        return self.headers.get("Host") or self.address


class Refused(Exception):
    """Raised for a request that is not valid, with the answer to it."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


@dataclass(slots=True)
class Subject:
    """What a request is about, for faults, ledger and journal."""

    call: str
    work: bool = True
    """A request that the server does its real work for; faults without a path strike only these."""
    language: str | None = None
    code: str | None = None
    sent: Mapping[str, Any] | None = None
    """What the request asks for, as the journal keeps it."""
    route: str | None = None
    """The path as the journal names it, where it holds more than a name."""
    on: Operation | None = None
    """What it does to a sandbox with a life cycle."""


class Execution(Protocol):
    """How an app reports the real work of a request."""

    @property
    def attempt(self) -> int:
        """Which attempt of its call the request is, from 1."""

    def started(self) -> None:
        """The code begins to run."""

    def finished(self, **more: Unpack[EventNote]) -> None:
        """The code ran to its end, or to its time limit."""

    def failed(self, event: str, **more: Unpack[EventNote]) -> None:
        """The work has no result; write why to the journal."""


_NOT_FOUND = b'{"detail":"Not Found"}'


class Visit(ABC):
    """One request to an app, with what the app learns about it.

    The server calls each method at most once. By default every
    POST is work, everyone is admitted, and content faults change nothing.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.reads_body = request.method in ("POST", "PUT", "PATCH")
        """The body must be read before the request can be answered."""
        self.expects_json = True
        """The journal notes a body of another content type."""
        self.ping = False
        """This is the health check, which a wedged server may still answer."""

    def describe(self) -> Subject | None:
        """Say what the request is about, once its body is there.

        None (admin) exempts it from faults and ledger.
        """
        body = self.request.body
        call = call_of(body.decode("utf-8", "replace"), body)
        return Subject(call, work=self.request.method == "POST")

    async def admit(self) -> Answer | None:
        """Admit a request for work, now or later, or turn it away with an answer."""
        return None

    def leave(self) -> None:
        """End a request that was admitted."""
        return

    @abstractmethod
    async def answer(self, execution: Execution) -> Answer:
        """Return the answer when nothing goes wrong; exceptions become the app's ``failure``."""

    def spoil(self, answer: Answer | None, action: ContentFault) -> tuple[Answer, float]:
        """Apply a content fault.

        Return the spoiled answer, and how many seconds it takes in phase ``during``. ``answer`` is
        None when nothing was executed.
        """
        if answer is None:
            answer = Answer(status=500, body=b'{"detail":"Internal Server Error"}')
        return answer, 0.0

    def error_body(self, status: int) -> Any:
        """The body of an error that a fault gives without a body of its own; None: FastAPI's."""
        return None

    def die(self) -> Answer:
        """Let the sandbox die that the request is about; return the answer that it is gone."""
        return Answer(status=404, body=_NOT_FOUND)


class Conversation(ABC):
    """What an app does on one WebSocket: it opens a visit for each message."""

    @abstractmethod
    def visit(self, text: str) -> Visit | None:
        """Open the visit of a message; None for one that ends the conversation."""

    def opening(self) -> Visit | None:
        """The visit that is served as soon as the socket is open, before any message."""
        return None

    def leaving(self) -> None:
        """The client has closed the connection while a message is being served."""
        return

    def left(self) -> None:
        """The connection is over, for whatever reason, and no message is being served."""
        return


class App(Protocol):
    """A fake behind the server."""

    def visit(self, request: Request) -> Visit:
        """Open the visit of a request whose head has been read."""

    def converse(self, request: Request) -> Conversation | Answer | None:
        """Open a WebSocket, or answer its handshake; None: this app has none."""
        return None

    def failure(self, error: Exception) -> Answer:
        """What the faked server answers when it has a bug.

        That is Starlette's plain 500, unless it has words of its own.
        """
        return Answer.text("Internal Server Error", status=500)


def parse_target(target: str) -> tuple[str, str]:
    """Split a request target into the decoded path and the raw query, as uvicorn does."""
    is_plain = target[:1] == "/" and not ("%" in target or "?" in target or "#" in target)
    if is_plain:
        return target, ""
    path, _, query = origin_form(target, target).partition("?")
    return unquote(path), query


def origin_form(target: str, otherwise: str = "/") -> str:
    """A request's target as path and query.

    The client may have sent a whole URL, or something else such as a star: then ``otherwise``.
    """
    if not target.startswith("/"):
        _scheme, found, rest = target.partition("://")
        _host, _, path = rest.partition("/")
        target = f"/{path}" if found else otherwise
    return target.partition("#")[0]


def digest_of(body: bytes) -> str:
    """The identity of a call without a mark: the same bytes are the same call."""
    return "body-" + hashlib.blake2b(body, digest_size=8).hexdigest()


def call_of(text: str, body: bytes) -> str:
    """The identity of a call: the mark in its text, else a digest of the body."""
    found = CALL_MARK.search(text)
    return found.group(1) if found else digest_of(body)


Handler = Callable[[Request], Awaitable[Answer]]


class AdminVisit(Visit):
    """A request to an admin route, which faults never strike."""

    def __init__(self, request: Request, admin: Callable[[Request], Answer]) -> None:
        super().__init__(request)
        self.reads_body = True
        self._admin = admin

    def describe(self) -> None:
        return None

    async def answer(self, execution: Execution) -> Answer:
        return self._admin(self.request)


class _HandlerVisit(Visit):
    def __init__(self, request: Request, handler: Handler) -> None:
        super().__init__(request)
        self._handler = handler

    async def answer(self, execution: Execution) -> Answer:
        execution.started()
        answer = await self._handler(self.request)
        execution.finished()
        return answer


class WireApp(App):
    """An app of one function: ``WireApp(handler)`` serves ``async handler(request) -> Answer``."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def visit(self, request: Request) -> Visit:
        return _HandlerVisit(request, self._handler)


H = TypeVar("H")

_NOT_ALLOWED = b'{"detail":"Method Not Allowed"}'
_SAFE_IN_LOCATION = ":/%#?=@[]!$&'()*+,"


class Routes(Generic[H]):
    """A table ``{path: {method: handler}}`` of exact paths; a handler can be any object."""

    def __init__(self, table: Mapping[str, Mapping[str, H]]) -> None:
        self._table = table
        self.paths = frozenset(table)

    def find(self, method: str, path: str, *, host: str, query: str = "") -> H | Answer:
        """The handler, or the answer that there is none.

        ``host`` is the Host header, or the server's address.
        """
        methods = self._table.get(path)
        if methods is None:
            return self._elsewhere(path, host, query)
        handler = methods.get(method)
        if handler is None:
            allowed = ", ".join(sorted(methods))
            return Answer(status=405, body=_NOT_ALLOWED, headers=(("allow", allowed),))
        return handler

    def _elsewhere(self, path: str, host: str, query: str) -> Answer:
        """Redirect to the same path with or without a slash at its end, as Starlette does."""
        other = path.rstrip("/") if path.endswith("/") else path + "/"
        if path == "/" or other not in self._table:
            return Answer(status=404, body=_NOT_FOUND)
        url = f"http://{host}{other}"
        if query:
            url += f"?{query}"
        location = quote(url, safe=_SAFE_IN_LOCATION)
        return Answer(status=307, content_type=None, late_headers=(("location", location),))


def is_json(content_type: str) -> bool:
    """True for the content types that FastAPI parses as JSON."""
    message = Message()
    message["content-type"] = content_type
    if message.get_content_maintype() != "application":
        return False
    subtype = message.get_content_subtype()
    return subtype == "json" or subtype.endswith("+json")


DEEPEST_JSON = 970
"""Deepest nesting that the JSON parser of a real server accepts.

A little below the recursion limit of Python 3.11.
"""


def deeper_than(body: bytes, limit: int) -> bool:
    """True if the JSON text is nested deeper than ``limit``, which is far beyond what is usual."""
    return nesting(body.decode("latin-1")) > limit


def json_invalid(error: json.JSONDecodeError) -> dict[str, Any]:
    """The problem of a body that is not JSON, as FastAPI writes it on Python 3.10 and 3.11."""
    message = error.msg
    at = error.pos
    if message.startswith("Illegal trailing comma"):
        # Since 3.13; before, the bracket after the comma was the problem.
        after_comma = error.doc[at + 1 :].lstrip(" \t\n\r")
        at = len(error.doc) - len(after_comma)
        message = "Expecting property name enclosed in double quotes"
        if error.doc[at] == "]":
            message = "Expecting value"
    return {
        "type": "json_invalid",
        "loc": ("body", at),
        "msg": "JSON decode error",
        "input": {},
        "ctx": {"error": message},
    }
