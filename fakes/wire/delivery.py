"""Sending an answer, whole or spoiled: cut, dripping, malformed, or broken off in the middle."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal

from sfusion.fakes.errors import BrokenStream
from sfusion.fakes.faults import Drip, Malformed
from sfusion.fakes.faults.action import part
from sfusion.fakes.wire.connection import Connection
from sfusion.fakes.wire.message import Answer, chunk, render_head

Ending = Literal["close", "reset", "hang", "crash"]


@dataclass(slots=True)
class Spoilage:
    """What goes wrong while the body is sent."""

    content_type: str | None = None
    pause: float = 0.0
    """Seconds between the head and the body."""
    drip: Drip | None = None
    malformed: Malformed | None = None
    cut: float | None = None
    """Share (below 1) or number of bytes after which ``ending`` happens."""
    ending: Ending = "close"
    hang_seconds: float | None = None

    def needs_whole(self, answer: Answer) -> bool:
        """Must all of a stream be known before its first byte can be sent?"""
        if self.malformed is not None:
            return True
        # Pieces of a relayed answer are as large as the network made them: a share of one would be no promise.
        return answer.relayed and answer.length is None and self.cut is not None and self.cut < 1


class Delivery:
    """Sends answers over one connection."""

    def __init__(self, connection: Connection, *, head_only: bool, announce_close: bool) -> None:
        self._connection = connection
        self._head_only = head_only
        self._announce_close = announce_close

    async def send(self, answer: Answer) -> None:
        """Send all of it."""
        head = render_head(answer, announce_close=self._announce_close)
        if answer.stream is None:
            connection = self._connection
            if connection.transport is not None:
                connection.transport.write(head if self._head_only else head + answer.body)
            if answer.close:
                connection.finish()
            elif connection.full:
                await connection.drained()
            return
        self._write(head)
        if not self._head_only:
            await self._stream(answer)

    async def send_spoiled(self, answer: Answer, spoilage: Spoilage) -> Ending | None:
        """Send it as the spoilage says; gives how the caller must end the connection, None when whole."""
        if spoilage.content_type is not None:
            answer = answer.with_type(spoilage.content_type)
        if answer.stream is not None and spoilage.needs_whole(answer):
            answer = await answer.whole()
        if spoilage.malformed is not None:
            return await self._send_malformed(answer, spoilage.malformed)
        self._write(render_head(answer, announce_close=self._announce_close))
        if spoilage.pause:
            await asyncio.sleep(spoilage.pause)
        if self._head_only:
            return None
        if answer.stream is not None:
            return await self._stream_spoiled(answer, spoilage)
        size = len(answer.body) if spoilage.cut is None else part(spoilage.cut, len(answer.body))
        if spoilage.drip is None:
            self._write(answer.body[:size])
        else:
            await self._drip(answer.body[:size], spoilage.drip)
        await self._connection.drained()
        return None if spoilage.cut is None else spoilage.ending

    async def _send_malformed(self, answer: Answer, malformed: Malformed) -> Ending:
        body = answer.body
        head = render_head(answer, announce_close=self._announce_close)
        match malformed.what:
            case "status_line":
                self._write(b"HTTP/1.1 OK 200\r\n" + head.partition(b"\r\n")[2] + body)
            case "header":
                self._write(head[:-2] + b"this line has no colon\r\n\r\n" + body)
            case "json":
                broken = body[:-1] + b","
                self._write(render_head(answer.with_body(broken)) + broken)
            case "chunk":
                lines = head.split(b"\r\n")
                kept = [line for line in lines if not line.lower().startswith(b"content-length")]
                opening = b"\r\n".join([*kept[:-2], b"transfer-encoding: chunked", b"", b""])
                half = len(body) // 2
                self._write(opening + chunk(body[:half]) + b"zz\r\n" + body[half:] + b"\r\n0\r\n\r\n")
        await self._connection.drained()
        return "close"

    async def _stream(self, answer: Answer) -> None:
        assert answer.stream is not None
        try:
            async for piece in answer.stream:
                if self._connection.lost:
                    break
                if piece:
                    self._write(chunk(piece) if answer.chunked else piece)
                    await self._connection.drained()
        except BrokenStream:
            self._connection.finish()
            return
        if answer.chunked:
            self._write(chunk(b""))

    async def _stream_spoiled(self, answer: Answer, spoilage: Spoilage) -> Ending | None:
        """Without a known length, a share below 1 cuts the first piece; bytes count over all."""
        assert answer.stream is not None
        left = spoilage.cut
        if left is not None and left < 1 and answer.length is not None:
            left = part(left, answer.length)
            if not left:
                return spoilage.ending
        step = spoilage.drip.bytes if spoilage.drip is not None else 1 << 62
        try:
            async for piece in answer.stream:
                if self._connection.lost:
                    return None
                size = len(piece) if left is None else part(left, len(piece))
                for start in range(0, size, step):
                    drop = piece[start : min(size, start + step)]
                    self._write(chunk(drop) if answer.chunked else drop)
                    if spoilage.drip is not None:
                        await asyncio.sleep(spoilage.drip.every)
                await self._connection.drained()
                if left is not None:
                    if left < 1 or left <= len(piece):
                        return spoilage.ending
                    left -= len(piece)
        except BrokenStream:
            return "close"
        if answer.chunked:
            self._write(chunk(b""))
        return None

    async def _drip(self, body: bytes, drip: Drip) -> None:
        for start in range(0, len(body), drip.bytes):
            if self._connection.lost:
                return
            self._write(body[start : start + drip.bytes])
            await asyncio.sleep(drip.every)

    def _write(self, data: bytes) -> None:
        if self._connection.transport is not None:
            self._connection.transport.write(data)
