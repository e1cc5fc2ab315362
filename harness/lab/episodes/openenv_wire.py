"""OpenEnv's wire, as far as an episode needs it: a WebSocket is the sandbox."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, ClassVar

import aiohttp

from .wire import CreateRefused, RequestLost, SandboxLost, Wire, read_json

_PATIENCE = 60.0
"""Seconds for an answer; chosen: longer than any command of a bundled episode."""
_FULL = "CAPACITY_REACHED"
_SANDBOX = "connection"
"""What the sandbox is called: it has no id."""


class OpenEnvWire(Wire):
    """One connection, which is closed after the first thing that goes wrong: answers may be late,
    and then belong to the step before."""

    speaks_python: ClassVar[bool] = True

    _socket: aiohttp.ClientWebSocketResponse | None = None

    async def __aexit__(self, *error: object) -> None:
        await self.delete(_SANDBOX)
        await super().__aexit__(*error)

    async def create(self) -> str:
        """Connect and reset; the answer to that says whether there is room."""
        assert self._session is not None
        url = f"{self.task.url.replace('http', 'ws', 1)}/ws"
        try:
            self._socket = await self._session.ws_connect(url, timeout=_closing())
            await self._exchange("reset", {"episode_id": self.task.id})
        except (TimeoutError, aiohttp.ClientError, OSError, SandboxLost) as error:
            await self.delete(_SANDBOX)
            if _FULL in str(error):
                raise CreateRefused(None) from error
            raise RequestLost(f"{type(error).__name__}: {error}") from error
        return _SANDBOX

    async def _exchange(self, kind: str, data: dict[str, Any]) -> Any:
        """Send a message; return the data of its answer."""
        assert self._socket is not None
        try:
            await self._socket.send_json({"type": kind, "data": data})
            message = await self._socket.receive(timeout=_PATIENCE)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise SandboxLost(f"{kind}: {type(error).__name__}: {error}") from error
        if message.type is not aiohttp.WSMsgType.TEXT:
            raise SandboxLost(f"{kind}: the connection ended")
        try:
            said = read_json(message.data)
            if said["type"] != "error":
                return said["data"]
            raise SandboxLost(f"{kind}: {said['data'].get('code')}")
        except (RequestLost, KeyError, TypeError, AttributeError) as error:
            raise SandboxLost(f"{kind}: the answer cannot be read: {error}") from error

    async def find(self) -> str | None:
        """Return None: what belonged to a lost connection is gone."""
        return None

    async def until_ready(self, sandbox: str) -> None:
        """Return at once: a reset is answered when the environment runs."""

    async def execute(self, sandbox: str, command: str) -> str:
        data = await self._exchange("step", {"code": command})
        try:
            return str(data["observation"]["stdout"])
        except (KeyError, TypeError) as error:
            raise SandboxLost(f"step: the answer cannot be read: {error}") from error

    async def write(self, sandbox: str, path: str, content: str) -> None:
        raise SandboxLost("an environment of OpenEnv has no files")

    async def read(self, sandbox: str, path: str) -> str:
        raise SandboxLost("an environment of OpenEnv has no files")

    async def delete(self, sandbox: str) -> None:
        """Say goodbye and close the connection, however it is; what belongs to it goes with it."""
        if self._socket is None or self._socket.closed:
            return
        with suppress(aiohttp.ClientError, OSError, TimeoutError):
            await self._socket.send_json({"type": "close"})
        await self._socket.close()


def _closing() -> Any:
    """Return how long to wait for the other end's close: it may be busy with a command."""
    return aiohttp.ClientWSTimeout(ws_close=2.0)
