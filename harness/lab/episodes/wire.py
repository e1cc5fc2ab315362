"""What the own client asks of a service, whichever it is."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import aiohttp

from .task import EpisodeTask

_PATIENCE = aiohttp.ClientTimeout(total=60.0)
"""Seconds for a request; chosen: longer than any command of a bundled episode."""
_GONE = (404, 410)
_REFUSED = 429


class RequestLost(Exception):
    """A request failed, and whether it had an effect is not known."""


class CreateRefused(RequestLost):
    """A create was refused; ``retry_after`` is what the service asks to wait, if it does."""

    def __init__(self, retry_after: float | None) -> None:
        super().__init__("the service refuses another sandbox")
        self.retry_after = retry_after


class SandboxLost(Exception):
    """The sandbox is gone, or cannot be reached."""


class Wire(ABC):
    """The requests of one episode."""

    speaks_python: ClassVar[bool] = False
    """Commands are lines of Python instead of a shell's."""

    def __init__(self, task: EpisodeTask) -> None:
        self.task = task
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        # A connection that idled may be closed by the time it is used again.
        connector = aiohttp.TCPConnector(force_close=True)
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=_PATIENCE, headers=self.headers()
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    def headers(self) -> dict[str, str]:
        return {}

    @abstractmethod
    async def create(self) -> str:
        """Create a sandbox and return its id."""

    @abstractmethod
    async def find(self) -> str | None:
        """Return the id of the live sandbox with the label of this episode."""

    @abstractmethod
    async def until_ready(self, sandbox: str) -> None:
        """Return when the sandbox runs."""

    @abstractmethod
    async def execute(self, sandbox: str, command: str) -> str:
        """Run a command and return what it printed."""

    @abstractmethod
    async def write(self, sandbox: str, path: str, content: str) -> None: ...

    @abstractmethod
    async def read(self, sandbox: str, path: str) -> str: ...

    @abstractmethod
    async def delete(self, sandbox: str) -> None:
        """Delete a sandbox; one that is gone is deleted."""

    # -- requests --

    async def ask(self, method: str, url: str, **more: Any) -> tuple[int, bytes]:
        """Send a request; return status and body. Raises RequestLost if there is no answer."""
        assert self._session is not None
        try:
            async with self._session.request(method, url, **more) as answer:
                body = await answer.read()
                if answer.status == _REFUSED:
                    raise CreateRefused(_seconds(answer.headers.get("retry-after")))
                return answer.status, body
        except (TimeoutError, aiohttp.ClientError, OSError, asyncio.IncompleteReadError) as error:
            raise RequestLost(f"{type(error).__name__}: {error}") from error

    async def control(self, method: str, url: str, **more: Any) -> Any:
        """Send a request about sandboxes; return the JSON of a good answer."""
        status, body = await self.ask(method, url, **more)
        if status in _GONE:
            raise SandboxLost("there is no such sandbox any more")
        if status >= 300:
            raise RequestLost(f"{method} was answered with {status}")
        return read_json(body)

    async def inside(self, method: str, url: str, **more: Any) -> bytes:
        """Send a request to a sandbox; return the body of a good answer."""
        try:
            status, body = await self.ask(method, url, **more)
        except RequestLost as error:
            raise SandboxLost(str(error)) from error
        if status >= 300:
            raise SandboxLost(f"the sandbox answered with {status}")
        return body

    async def gone(self, method: str, url: str) -> None:
        """Send a delete; raise RequestLost unless the sandbox is gone then."""
        status, _ = await self.ask(method, url)
        if status >= 300 and status not in _GONE:
            raise RequestLost(f"{method} was answered with {status}")


def read_json(body: bytes) -> Any:
    """Return the JSON of a body; raise RequestLost for anything else."""
    try:
        return json.loads(body)
    except ValueError as error:
        raise RequestLost(f"the answer is not JSON: {error}") from error


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
