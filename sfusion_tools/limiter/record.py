"""A limiter that outlives its process: what a successor has to know is stored before it can matter.

Only ``RecordStore`` imports Ray, and when it is used. The functions of
``ray.experimental.internal_kv`` are used here and nowhere else: Ray has no public store that
outlives every actor, and an actor that only stored this could die together with the limiter.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import cache
from typing import Any, Protocol
from uuid import uuid4

from sfusion_tools.errors import LimiterError
from sfusion_tools.limiter.book import Observer
from sfusion_tools.limiter.core import LimiterCore
from sfusion_tools.limiter.host import LimiterHost, RunningClock
from sfusion_tools.limiter.messages import PROTOCOL, Batch, LimiterRecord, LimiterReply
from sfusion_tools.limiter.settings import LimiterSettings

logger = logging.getLogger(__name__)

_NAMESPACE = b"sfusion:limiter"


def learning_of(
    record: LimiterRecord | None, settings: LimiterSettings, since_removal: float | None
) -> tuple[dict[str, int], float]:
    """Return which clients a new limiter must learn from, and for how long at most.

    Before that it grants nothing. They may believe in their permits for a whole lease after the
    predecessor ended, which was just now for all we know, or when it was removed.
    """
    if record is None:
        return {}, settings.lease
    seconds = max(record.lease, settings.lease) - (since_removal or 0.0)
    if seconds <= 0:
        return {}, settings.lease
    return record.clients, seconds


class RecordStore:
    """The record of a limiter, and the permits of those who call its actor directly."""

    def __init__(self, name: str) -> None:
        from ray.experimental import internal_kv

        self._kv: Any = internal_kv
        self._record = f"limiter:{name}"
        self._callers = f"limiter:{name}:callers"
        self._removal = f"limiter:{name}:removed"

    def read(self) -> LimiterRecord | None:
        found = self._get(self._record)
        return None if found is None else LimiterRecord(**found)

    def write(self, record: LimiterRecord) -> None:
        self._put(self._record, asdict(record))

    def read_callers(self) -> list[str]:
        """Return the names of the permits that direct callers hold, oldest first."""
        return self._get(self._callers) or []

    def write_callers(self, names: Iterable[str]) -> None:
        self._put(self._callers, list(names))

    def mark_removed(self, actor: str) -> None:
        """Note that this actor is gone for good from now on.

        Permits of direct callers end with it.
        """
        self._put(self._removal, {"actor": actor, "at": time.time()})
        self._delete(self._callers)

    def seconds_since_removal(self, actor: str) -> float | None:
        """Return how long ago this actor was removed, None if it was not."""
        found = self._get(self._removal)
        if found is None or found["actor"] != actor:
            return None
        return time.time() - found["at"]  # type: ignore[no-any-return] # what mark_removed wrote

    def forget(self) -> None:
        for key in (self._record, self._callers, self._removal):
            self._delete(key)

    def _get(self, key: str) -> Any:
        found = self._store("get", key.encode())
        return json.loads(found) if found else None

    def _put(self, key: str, value: object) -> None:
        self._store("put", key.encode(), json.dumps(value).encode(), overwrite=True)

    def _delete(self, key: str) -> None:
        self._store("del", key.encode())

    def _store(self, action: str, *arguments: bytes, **options: bool) -> Any:
        function = getattr(self._kv, f"_internal_kv_{action}", None)
        if function is None:
            _warn_once()
            return None
        return function(*arguments, namespace=_NAMESPACE, **options)


@cache
def _warn_once() -> None:
    logger.warning(
        "this Ray has no key-value store for us: a limiter that takes over from a lost one learns "
        "of permits only from the clients that still hold them"
    )


class Store(Protocol):
    """Keeps the record of a limiter."""

    def read(self) -> LimiterRecord | None: ...

    def write(self, record: LimiterRecord) -> None: ...

    def seconds_since_removal(self, actor: str) -> float | None: ...


class RecordedLimiter:
    """The host of a limiter that learns from its predecessor's clients before it grants."""

    def __init__(
        self,
        id: str,
        store: Store,
        settings: LimiterSettings,
        *,
        unleased: Mapping[str, tuple[str, ...]] | None = None,
        observer: Observer | None = None,
    ) -> None:
        """Take over from a predecessor, if there was one.

        A record that was written under this ``id`` is that of an earlier life, whose settings stay
        in force.
        """
        self._id = id
        self._store = store
        self._recording = threading.Lock()
        record = store.read()
        since_removal = None
        if record is not None:
            since_removal = store.seconds_since_removal(record.actor)
            if record.actor == id:
                settings = LimiterSettings(**record.settings)
        learn_from, learn_for = learning_of(record, settings, since_removal)
        clock = RunningClock()
        clock.keep_running()
        core = LimiterCore(
            settings,
            clock(),
            incarnation=uuid4().hex[:8],
            # Tickets after a restart are higher than those before it: no limiter issues a million
            # per second.
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
                f"this limiter speaks protocol {PROTOCOL}, the client {batch.client} "
                f"{batch.attach.protocol}: use the same version of sfusion in all jobs of a cluster"
            )
        with self._recording:
            self._record(batch)
            return self.host.exchange(batch)

    def forget(self, client: str) -> None:
        """Take back what a client held that is gone for good; a successor need not wait for it."""
        with self._recording:
            self.host.exchange(Batch(client, detach=True))
            self._record()

    def configure(self, settings: LimiterSettings) -> None:
        with self._recording:
            self.host.configure(settings)
            self._record()

    def _record(self, attaching: Batch | None = None) -> None:
        self._store.write(self.host.record(self._id, attaching))
