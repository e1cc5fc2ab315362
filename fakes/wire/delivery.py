"""Sending an answer, whole or spoiled: cut, dripping, malformed, or broken off in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..errors import BrokenStream
from ..faults import BodyDamage
from ..faults.action import Ending, part
from .connection import Connection
from .message import Answer, chunk, render_head


class ShareCut:
    """Cuts a stream off after a share of its content, which the app can tell."""

    def __init__(self, share: float, yielded: Callable[[], float]) -> None:
        self._share = share
        self._yielded = yielded
        self.is_at_start = share == 0
        """Nothing is to be sent at all."""

    def keep(self, piece: bytes) -> bytes:
        """Return what is still to be sent of a piece."""
        return piece

    def is_reached(self, piece: bytes) -> bool:
        """Is this piece the last one?"""
        return self._yielded() >= self._share


class ByteCut:
    """Cuts a stream off after a number of bytes; a number below 1 is a share of the first piece."""

    def __init__(self, left: float, *, is_at_start: bool) -> None:
        self._left = left
        self.is_at_start = is_at_start

    def keep(self, piece: bytes) -> bytes:
        return piece[: part(self._left, len(piece))]

    def is_reached(self, piece: bytes) -> bool:
        if self._left < 1 or self._left <= len(piece):
            return True
        self._left -= len(piece)
        return False


def _cut_of(answer: Answer, at: float) -> ShareCut | ByteCut:
    """Where to cut a stream off.

    A share below 1 is one of the content, if the app knows it, or of the length, or of the first
    piece.
    """
    if at < 1 and answer.share is not None:
        return ShareCut(at, answer.share)
    if at < 1 and answer.length is not None:
        size = part(at, answer.length)
        return ByteCut(size, is_at_start=size == 0)
    return ByteCut(at, is_at_start=False)


class Delivery:
    """Sends the answer to one request."""

    def __init__(self, connection: Connection, *, head_only: bool, announce_close: bool) -> None:
        self._connection = connection
        self._head_only = head_only
        self._announce_close = announce_close

    async def send(self, answer: Answer) -> None:
        head = render_head(answer, announce_close=self._announce_close)
        connection = self._connection
        if answer.stream is None:
            connection.write(head if self._head_only else head + answer.body)
            if answer.close:
                connection.finish()
            elif connection.full:
                await connection.drained()
            return
        connection.write(head)
        if not self._head_only and await self._stream(answer, BodyDamage()):
            connection.finish()

    async def send_spoiled(self, answer: Answer, damage: BodyDamage) -> Ending | None:
        """Send an answer as the damage says.

        Return how the caller must end the connection, None if it stays open.
        """
        if damage.content_type is not None:
            answer = answer.with_type(damage.content_type)
        if answer.stream is not None and _needs_whole(answer, damage):
            answer = await answer.whole()

        if damage.ending == "end" and answer.stream is None and damage.cut is not None:
            size = part(damage.cut, len(answer.body))
            answer = answer.with_body(answer.body[:size])
            damage.cut = None

        head = render_head(answer, announce_close=self._announce_close)
        if damage.rewrite is not None:
            await self._write_slowly(damage.rewrite(head, answer.body), damage)
            return "close"

        self._connection.write(head)
        if self._head_only or answer.stream is not None:
            if damage.pause:
                await asyncio.sleep(damage.pause)
            return None if self._head_only else await self._stream(answer, damage)

        if damage.cut is None:
            await self._write_slowly(answer.body, damage)
            return None
        size = part(damage.cut, len(answer.body))
        await self._write_slowly(answer.body[:size], damage)
        return damage.ending

    async def _stream(self, answer: Answer, damage: BodyDamage) -> Ending | None:
        """Send a stream; return how to end the connection, None if it stays open."""
        assert answer.stream is not None
        cut = None if damage.cut is None else _cut_of(answer, damage.cut)
        if cut is not None and cut.is_at_start:
            return self._broken_off(answer, damage.ending)

        try:
            async for piece in answer.stream:
                if self._connection.lost:
                    return None
                kept = piece if cut is None else cut.keep(piece)
                if damage.drip is not None:
                    await self._drip(kept, *damage.drip, chunked=answer.chunked)
                elif kept:
                    self._connection.write(chunk(kept) if answer.chunked else kept)
                await self._connection.drained()
                if cut is not None and cut.is_reached(piece):
                    return self._broken_off(answer, damage.ending)
        except BrokenStream:
            return "close"

        if answer.chunked:
            self._connection.write(chunk(b""))
        return None

    def _broken_off(self, answer: Answer, ending: Ending) -> Ending | None:
        """End a stream before its end: the caller breaks the connection, or it looks complete."""
        if ending != "end":
            return ending
        if not answer.chunked:
            return "close"
        self._connection.write(chunk(b""))
        return None

    async def _drip(self, piece: bytes, size: int, pause: float, *, chunked: bool) -> None:
        """Send a piece of a stream a few bytes at a time, with a pause after each of them."""
        for start in range(0, len(piece), size):
            drop = piece[start : start + size]
            self._connection.write(chunk(drop) if chunked else drop)
            await asyncio.sleep(pause)

    async def _write_slowly(self, data: bytes, damage: BodyDamage) -> None:
        if damage.pause:
            await asyncio.sleep(damage.pause)
        if damage.drip is None:
            self._connection.write(data)
        else:
            step, pause = damage.drip
            for start in range(0, len(data), step):
                if start:
                    await asyncio.sleep(pause)
                if self._connection.lost:
                    return
                self._connection.write(data[start : start + step])
        await self._connection.drained()


def _needs_whole(answer: Answer, damage: BodyDamage) -> bool:
    """True when all of a stream must be known before its first byte can be sent."""
    if damage.rewrite is not None:
        return True
    # Pieces of a relayed answer are as large as the network made them, so a share of one piece
    # means nothing.
    is_share = damage.cut is not None and damage.cut < 1
    return is_share and answer.relayed and answer.length is None
