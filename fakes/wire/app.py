"""What a fake plugs into the server: its requests, what they are about, and its answers."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote

from sfusion.fakes.wire.message import Answer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Mapping

    from sfusion.fakes.faults import Action

MARK = re.compile(r"sfusion:call=([A-Za-z0-9._-]+)")
"""The mark that a workload puts in a comment of its code, so that any client's calls can be followed."""


@dataclass(slots=True)
class Request:
    """One HTTP request. ``headers`` is case-insensitive; ``body`` is empty until it has been read."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    http_1_0: bool = False
    address: str = ""
    """The server's own host:port, for redirects to clients that sent no Host header."""
    body: bytes = b""
    rest: AsyncIterator[bytes] | None = None
    """What follows ``body``, for servers that do not read long bodies whole."""
    target: str = ""
    """Path and query as they were sent."""
    parsed: Any = None
    """A place for the app to keep what it parsed in ``describe`` until ``answer``."""
    gone: Callable[[], asyncio.Future[None]] | None = None
    """Gives a future that is done when the client has left, for apps that then stop working."""

    @property
    def host(self) -> str:
        """The Host header, or the server's own address."""
        return self.headers.get("Host") or self.address

    @property
    def wants_close(self) -> bool:
        """uvicorn closes for HTTP/1.0 and for exactly ``close``."""
        return self.http_1_0 or self.headers.get("Connection") == "close"


@dataclass(slots=True)
class Subject:
    """What a request is about, for faults, ledger and journal."""

    call: str
    work: bool = True
    """A request that the server does its real work for; faults without a path strike only these."""
    language: str | None = None
    code: str | None = None


class Execution(Protocol):
    """Told by the app when the real work of a request begins and ends."""

    def started(self) -> None:
        """The code begins to run."""

    def finished(self) -> None:
        """The code ran to its end."""

    def failed(self, event: str, **more: Any) -> None:
        """The work came to nothing, and the journal shall hear why."""


class App(Protocol):
    """A fake behind the server. ``WireApp`` has a default for everything but ``answer``."""

    def reads_body(self, request: Request) -> bool:
        """Must the body be read before the request can be answered?"""

    def describe(self, request: Request) -> Subject | None:
        """What the request is about; None for requests that no fault and no ledger concerns (admin)."""

    def is_ping(self, request: Request) -> bool:
        """Is this the health check, which a wedged server may still answer?"""

    async def admit(self, request: Request, subject: Subject) -> Answer | None:
        """Let a request for work in, now or later, or turn it away with an answer."""

    def leave(self, subject: Subject) -> None:
        """A request that was let in is over."""

    async def answer(self, request: Request, execution: Execution) -> Answer:
        """The answer when nothing goes wrong; exceptions become the app's ``failure`` answer."""

    def spoil(self, request: Request, answer: Answer | None, action: Action) -> tuple[Answer, float]:
        """Apply a content fault: the spoiled answer, and how many seconds it takes to get there.

        ``answer`` is None when nothing was executed. Kinds an app does not know are returned unchanged.
        """

    def failure(self, error: Exception) -> Answer:
        """What the faked server says when it has a bug."""


def parse_target(target: str) -> tuple[str, str]:
    """Split a request target into the decoded path and the raw query, as uvicorn does."""
    if not ("%" in target or "?" in target or "#" in target) and target[:1] == "/":
        return target, ""
    if not target.startswith("/"):
        _, found, rest = target.partition("://")
        if found:
            slash = rest.find("/")
            target = rest[slash:] if slash >= 0 else "/"
    target = target.partition("#")[0]
    path, _, query = target.partition("?")
    return (unquote(path) if "%" in path else path), query


def digest_of(body: bytes) -> str:
    """The identity of a call without a mark: the same bytes are the same call."""
    return "body-" + hashlib.blake2b(body, digest_size=8).hexdigest()


class WireApp:
    """Defaults for an app whose every POST is work and which knows no content faults.

    ``WireApp(handler)`` serves ``async handler(request) -> Answer``; or subclass it and define ``answer``.
    """

    def __init__(self, handler: Callable[[Request], Awaitable[Answer]] | None = None) -> None:
        self._handler = handler

    def reads_body(self, request: Request) -> bool:
        """Bodies of POST, PUT and PATCH."""
        return request.method in ("POST", "PUT", "PATCH")

    def describe(self, request: Request) -> Subject | None:
        """The mark anywhere in the body, else the body's digest."""
        found = MARK.search(request.body.decode("utf-8", "replace"))
        call = found.group(1) if found else digest_of(request.body)
        return Subject(call, work=request.method == "POST")

    def is_ping(self, request: Request) -> bool:
        """No path is a health check."""
        return False

    async def admit(self, request: Request, subject: Subject) -> Answer | None:
        """Everybody is let in."""
        return None

    def leave(self, subject: Subject) -> None:
        """Nothing to give back."""

    async def answer(self, request: Request, execution: Execution) -> Answer:
        """Ask the handler; the whole of it counts as execution."""
        if self._handler is None:
            raise NotImplementedError("define answer() or give a handler")
        execution.started()
        answer = await self._handler(request)
        execution.finished()
        return answer

    def spoil(self, request: Request, answer: Answer | None, action: Action) -> tuple[Answer, float]:
        """Content faults are the business of the app that knows the content."""
        return answer or Answer(status=500, body=b'{"detail":"Internal Server Error"}'), 0.0

    def failure(self, error: Exception) -> Answer:
        """Starlette's plain 500."""
        return Answer.text("Internal Server Error", status=500)
