"""What a limiter leaves to its successor, kept in the key-value store of the Ray cluster.

Only ``RecordStore`` imports Ray, and when it is used. The functions of ``ray.experimental.internal_kv`` are used here
and nowhere else: Ray has no public store that outlives every actor, and an actor that only stored this could die
together with the limiter.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from sfusion_tools.limiter.messages import Batch
from sfusion_tools.limiter.settings import LimiterSettings

logger = logging.getLogger(__name__)

_NAMESPACE = b"sfusion:limiter"


@dataclass(frozen=True, slots=True)
class LimiterRecord:
    """What an actor wrote last: before every attachment that it applied, and when its settings changed."""

    actor: str
    """The id of the actor: the same after a restart by Ray, another one for a stranger with its name."""
    settings: dict[str, Any]
    clients: dict[str, int]
    """Those that may hold permits, with the numbers of their last attachments."""
    lease: float
    """The longest lease that one of them may know."""

    @classmethod
    def of(
        cls,
        actor: str,
        settings: LimiterSettings,
        clients: dict[str, int],
        lease: float,
        attaching: Batch | None = None,
    ) -> LimiterRecord:
        """Make the record of a limiter with these clients, one of which is about to be attached."""
        if attaching is not None:
            name = attaching.client
            clients = {**clients, name: max(clients.get(name, 0), attaching.number)}
        return cls(actor, asdict(settings), clients, lease)


def learning_of(
    record: LimiterRecord | None, settings: LimiterSettings, since_removal: float | None
) -> tuple[dict[str, int], float]:
    """Return which clients a new limiter must learn from before it grants anything, and for how long at most.

    They may believe in their permits for a whole lease after the predecessor ended, which was just now for all we know,
    or when it was removed.
    """
    if record is None:
        return {}, settings.lease
    seconds = max(record.lease, settings.lease) - (since_removal or 0.0)
    return (record.clients, seconds) if seconds > 0 else ({}, settings.lease)


class RecordStore:
    """The record of the limiter with one name, and the permits of those who call its actor directly."""

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
        """Note that this actor is gone for good from now on; permits of direct callers end with it."""
        self._put(self._removal, {"actor": actor, "at": time.time()})
        self._delete(self._callers)

    def seconds_since_removal(self, actor: str) -> float | None:
        """Return how long ago this actor was removed, None if it was not."""
        found = self._get(self._removal)
        return time.time() - found["at"] if found is not None and found["actor"] == actor else None

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
        "this Ray has no key-value store for us: a limiter that takes over from a lost one learns of permits only from "
        "the clients that still hold them"
    )
