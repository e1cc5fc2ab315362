"""WebSockets of a fake: each message is served as a request is, with the faults that strike it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from ..faults import BodyDamage
from ..faults.action import Ending, part
from .app import Request
from .connection import Connection
from .delivery import Delivery
from .frames import FrameError, FrameReader, Opcode, SocketMessage, accept_key, close_frame, frame
from .message import Answer

MOST_WAITING = 1000
"""Messages of one connection that wait to be served (chosen: clients of an episode send one)."""
NORMAL = 1000
GOING_AWAY = 1001
INTERNAL_ERROR = 1011
TRY_AGAIN_LATER = 1013
_TOO_MANY = 1008
_BUSY = (429, 503)
"""Statuses of faults for which a socket is closed with "try again later"."""


class WebSocket:
    """The server's end of one WebSocket."""

    def __init__(self, connection: Connection, leaving: Callable[[], None]) -> None:
        """``leaving`` is called when the client closes the connection, or loses it, while a message
        is being served."""
        self._connection = connection
        self._leaving = leaving
        self._is_idle = False
        self._reader = FrameReader()
        self._waiting: deque[str] = deque()
        self._came: asyncio.Future[None] | None = None
        self.closed = False
        """A close frame was sent or received; nothing more is sent."""

    def open(self, request: Request) -> None:
        """Answer the handshake."""
        key = accept_key(request.headers.get("Sec-WebSocket-Key", ""))
        self._connection.write(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
            b"sec-websocket-accept: " + key.encode() + b"\r\n\r\n"
        )
        self._connection.tunnel(self._received)
        self._connection.gone().add_done_callback(lambda _: self._leave())

    def _received(self, data: bytes) -> None:
        try:
            for message in self._reader.feed(data):
                self._take(message)
        except FrameError as error:
            self.close(error.code, str(error))
        self._wake()

    def _take(self, message: SocketMessage) -> None:
        match message.opcode:
            case Opcode.PING:
                self._write(frame(Opcode.PONG, message.data))
            case Opcode.CLOSE:
                self._leave()
                code = message.close_code
                self.close(NORMAL if code == 1005 else code)
            case Opcode.TEXT | Opcode.BINARY:
                self._waiting.append(message.data.decode("utf-8", "replace"))
                if len(self._waiting) > MOST_WAITING:
                    self.close(_TOO_MANY, "too many messages wait to be served")

    async def receive(self) -> str | None:
        """The next message; None when the connection is over."""
        while not self.closed and not self._connection.lost:
            if self._waiting:
                return self._waiting.popleft()
            self._came = asyncio.get_running_loop().create_future()
            gone = self._connection.gone()
            self._is_idle = True
            await asyncio.wait({self._came, gone}, return_when=asyncio.FIRST_COMPLETED)
            self._is_idle = False
        return None

    def _leave(self) -> None:
        if not self.closed and not self._is_idle:
            self._leaving()

    def _wake(self) -> None:
        if self._came is not None and not self._came.done():
            self._came.set_result(None)

    def send(self, text: bytes) -> None:
        """Send a text message."""
        self._write(frame(Opcode.TEXT, text))

    def send_raw(self, data: bytes) -> None:
        """Send bytes that need not be whole frames."""
        self._write(data)

    def close(self, code: int, reason: str = "") -> None:
        """Send a close frame and end the connection."""
        if self.closed:
            return
        self._write(close_frame(code, reason))
        self.closed = True
        self._connection.finish()
        self._wake()

    def _write(self, data: bytes) -> None:
        if not self.closed:
            self._connection.write(data)


class MessageDelivery(Delivery):
    """Sends the answer to one message: each piece of a stream, or the body, is a message.

    An answer that is not a success, as faults give, closes the socket with a code.
    """

    def __init__(self, socket: WebSocket, connection: Connection) -> None:
        super().__init__(connection, head_only=False, announce_close=False)
        self._socket = socket

    async def send(self, answer: Answer) -> None:
        if answer.status >= 400:
            self._socket.close(TRY_AGAIN_LATER if answer.status in _BUSY else INTERNAL_ERROR)
            return
        if answer.stream is None:
            if answer.body:
                self._socket.send(answer.body)
        else:
            async for piece in answer.stream:
                self._socket.send(piece)
                await self._connection.drained()
        if answer.close:
            self._socket.close(answer.close_code)

    async def send_spoiled(self, answer: Answer, damage: BodyDamage) -> Ending | None:
        if answer.status >= 400:
            await self.send(answer)
            return None
        messages = [answer.body] if answer.body else []
        if answer.stream is not None:
            messages = [piece async for piece in answer.stream]
        if damage.rewrite is not None:
            messages = [message[:-1] + b"," for message in messages]
        if damage.pause:
            await asyncio.sleep(damage.pause)
        if damage.ending == "end" and damage.cut is not None:
            for message in messages[: part(damage.cut, len(messages))]:
                self._socket.send(message)
            self._socket.close(NORMAL)
            return None

        data = b"".join(frame(Opcode.TEXT, message) for message in messages)
        if damage.cut is not None:
            self._socket.send_raw(data[: part(damage.cut, len(data))])
            return damage.ending
        await self._drip_frames(data, damage)
        if answer.close:
            self._socket.close(answer.close_code)
        return None

    async def _drip_frames(self, data: bytes, damage: BodyDamage) -> None:
        step, pause = damage.drip or (max(1, len(data)), 0.0)
        for start in range(0, len(data), step):
            if start:
                await asyncio.sleep(pause)
            self._socket.send_raw(data[start : start + step])
