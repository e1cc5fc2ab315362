"""A limiter that outlives its process: what a successor has to know is stored before it can matter."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Protocol
from uuid import uuid4

from sfusion_tools.errors import LimiterError
from sfusion_tools.limiter.book import Observer
from sfusion_tools.limiter.core import LimiterCore
from sfusion_tools.limiter.host import LimiterHost, RunningClock
from sfusion_tools.limiter.messages import PROTOCOL, Batch, LimiterReply
from sfusion_tools.limiter.record import LimiterRecord, learning_of
from sfusion_tools.limiter.settings import LimiterSettings


class Store(Protocol):
    """Keeps the record of a limiter."""

    def read(self) -> LimiterRecord | None: ...

    def write(self, record: LimiterRecord) -> None: ...

    def seconds_since_removal(self, actor: str) -> float | None: ...


class RecordedLimiter:
    """The host of a limiter, which learns from its predecessor's clients before it grants anything."""

    def __init__(
        self,
        id: str,
        store: Store,
        settings: LimiterSettings,
        *,
        unleased: Mapping[str, tuple[str, ...]] | None = None,
        observer: Observer | None = None,
    ) -> None:
        """A record that was written under this ``id`` is that of an earlier life, whose settings stay in force."""
        self._id = id
        self._store = store
        self._recording = threading.Lock()
        record = store.read()
        if record is not None and record.actor == id:
            settings = LimiterSettings(**record.settings)
        since_removal = store.seconds_since_removal(record.actor) if record is not None else None
        learn_from, learn_for = learning_of(record, settings, since_removal)
        clock = RunningClock()
        clock.keep_running()
        core = LimiterCore(
            settings,
            clock(),
            incarnation=uuid4().hex[:8],
            # Tickets after a restart are higher than those before it: no limiter issues a million per second.
            first_ticket=time.time_ns() // 1000,
            unleased=dict(unleased or {}),
            learn_from=learn_from,
            learn_for=learn_for,
            observer=observer,
        )
        self.host = LimiterHost(core, clock)
        self._record()

    def exchange(self, batch: Batch) -> LimiterReply:
        """Apply a batch; one that attaches a client is recorded first."""
        if batch.attach is None:
            return self.host.exchange(batch)
        if batch.attach.protocol != PROTOCOL:
            raise LimiterError(
                f"this limiter speaks protocol {PROTOCOL}, the client {batch.client} {batch.attach.protocol}: "
                "use the same version of sfusion in all jobs of a cluster"
            )
        with self._recording:
            self._record(batch)
            return self.host.exchange(batch)

    def configure(self, settings: LimiterSettings) -> None:
        with self._recording:
            self.host.configure(settings)
            self._record()

    def _record(self, attaching: Batch | None = None) -> None:
        self._store.write(self.host.record(self._id, attaching))
