"""A limiter core whose clock the test sets."""

from __future__ import annotations

import itertools

from sfusion_tools.limiter.core import LimiterCore
from sfusion_tools.limiter.messages import Attach, Batch, LimiterReply, Poll
from sfusion_tools.limiter.settings import LimiterSettings


class Bench:
    """A core and its clock."""

    def __init__(self, **settings: object) -> None:
        self.now = 100.0
        self.core = LimiterCore(LimiterSettings(**settings), self.now)  # type: ignore[arg-type]
        self.granted: list[tuple[str, int, str]] = []
        self.numbers = itertools.count(1)
        self.epochs: dict[str, int] = {}

    def attach(
        self, client: str, held: tuple[str, ...] = (), waiting: tuple = (), share: str = ""
    ) -> LimiterReply:
        attach = Attach(held, waiting, share)
        reply = self.deliver(Batch(client, attach, number=next(self.numbers)))
        self.epochs[client] = reply.version
        return reply

    def send(self, client: str, **batch: object) -> LimiterReply:
        return self.deliver(self.batch(client, **batch))

    def batch(self, client: str, **batch: object) -> Batch:
        return Batch(client, epoch=self.epochs.get(client, 0), number=next(self.numbers), **batch)  # type: ignore[arg-type]

    def deliver(self, batch: Batch) -> LimiterReply:
        return self._note(batch.client, self.core.exchange(self.now, batch))

    def poll(self, client: str, epoch: int | None = None) -> LimiterReply:
        poll = Poll(
            client, self.epochs[client] if epoch is None else epoch, next(self.numbers), 1.0
        )
        return self._note(client, self.core.poll(self.now, poll))

    def _note(self, client: str, reply: LimiterReply) -> LimiterReply:
        self.granted += [(client, number, permit) for number, permit in reply.grants]
        return reply
