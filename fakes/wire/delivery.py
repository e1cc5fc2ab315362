"""Sending an answer, whole or spoiled: cut, dripping, malformed, or broken off in the middle."""

from __future__ import annotations

import asyncio

from ..errors import BrokenStream
from ..faults import Spoilage
from ..faults.action import Ending, part
from .connection import Connection
from .message import Answer, chunk, render_head


class Delivery:
    """Sends the answer to one request."""

    def __init__(self, connection: Connection, *, head_only: bool, announce_close: bool) -> None:
        self._connection = connection
        self._head_only = head_only
        self._announce_close = announce_close

    async def send(self, answer: Answer) -> None:
        head = render_head(answer, announce_close=self._announce_close)
        if answer.stream is None:
            connection = self._connection
            connection.write(head if self._head_only else head + answer.body)
            if answer.close:
                connection.finish()
            elif connection.full:
                await connection.drained()
            return
        self._connection.write(head)
        if not self._head_only and await self._stream(answer, Spoilage()):
            self._connection.finish()

    async def send_spoiled(self, answer: Answer, spoilage: Spoilage) -> Ending | None:
        """Send it as the spoilage says; return how the caller must end the connection, None if it
        stays open."""
        if spoilage.content_type is not None:
            answer = answer.with_type(spoilage.content_type)
        if answer.stream is not None and _needs_whole(answer, spoilage):
            answer = await answer.whole()
        head = render_head(answer, announce_close=self._announce_close)
        if spoilage.rewrite is not None:
            await self._write_slowly(spoilage.rewrite(head, answer.body), spoilage)
            return "close"
        self._connection.write(head)
        if self._head_only or answer.stream is not None:
            if spoilage.pause:
                await asyncio.sleep(spoilage.pause)
            return None if self._head_only else await self._stream(answer, spoilage)
        size = len(answer.body) if spoilage.cut is None else part(spoilage.cut, len(answer.body))
        await self._write_slowly(answer.body[:size], spoilage)
        return None if spoilage.cut is None else spoilage.ending

    async def _stream(self, answer: Answer, spoilage: Spoilage) -> Ending | None:
        """A share below 1 is one of the content, if the app knows it, or of the length, or of the
        first piece."""
        assert answer.stream is not None
        left = spoilage.cut
        share = None
        if answer.share is not None and left is not None and left < 1:
            share, left = left, None
            if not share:
                return spoilage.ending
        if left is not None and left < 1 and answer.length is not None:
            left = part(left, answer.length)
            if not left:
                return spoilage.ending
        step, pause = spoilage.drip or (1 << 62, 0.0)
        try:
            async for piece in answer.stream:
                if self._connection.lost:
                    return None
                size = len(piece) if left is None else part(left, len(piece))
                for start in range(0, size, step):
                    drop = piece[start : min(size, start + step)]
                    self._connection.write(chunk(drop) if answer.chunked else drop)
                    if spoilage.drip is not None:
                        await asyncio.sleep(pause)
                await self._connection.drained()
                if share is not None and answer.share is not None and answer.share() >= share:
                    return spoilage.ending
                if left is not None:
                    if left < 1 or left <= len(piece):
                        return spoilage.ending
                    left -= len(piece)
        except BrokenStream:
            return "close"
        if answer.chunked:
            self._connection.write(chunk(b""))
        return None

    async def _write_slowly(self, data: bytes, spoilage: Spoilage) -> None:
        if spoilage.pause:
            await asyncio.sleep(spoilage.pause)
        if spoilage.drip is None:
            self._connection.write(data)
        else:
            step, pause = spoilage.drip
            for start in range(0, len(data), step):
                if start:
                    await asyncio.sleep(pause)
                if self._connection.lost:
                    return
                self._connection.write(data[start : start + step])
        await self._connection.drained()


def _needs_whole(answer: Answer, spoilage: Spoilage) -> bool:
    """True when all of a stream must be known before its first byte can be sent."""
    if spoilage.rewrite is not None:
        return True
    # Pieces of a relayed answer are as large as the network made them, so a share of one piece
    # means nothing.
    return (
        answer.relayed and answer.length is None and spoilage.cut is not None and spoilage.cut < 1
    )
