"""What a limiter's successor must know, kept in the key-value store of the Ray cluster.

Importing this module imports Ray. The functions of ``ray.experimental.internal_kv`` are used here and nowhere else: Ray
has no public store that outlives every actor, and an actor that only stored this could die together with the limiter.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache
from typing import Any

from ray.experimental import internal_kv

from sfusion_tools.limiter.succession import LimiterRecord

logger = logging.getLogger(__name__)

_NAMESPACE = b"sfusion:limiter"


class RecordStore:
    """The record of the limiter with one name, and the permits of those who call its actor directly."""

    def __init__(self, name: str) -> None:
        self._record = f"limiter:{name}"
        self._callers = f"limiter:{name}:callers"
        self._removal = f"limiter:{name}:removed"

    def read(self) -> LimiterRecord | None:
        found = _get(self._record)
        if found is None:
            return None
        settings, clients = found["settings"], found["clients"]
        if isinstance(clients, list):  # written by sfusion 0.1
            clients = dict.fromkeys(clients, 0)
        return LimiterRecord(found["actor"], settings, clients, found.get("lease", settings["lease"]))

    def write(self, record: LimiterRecord) -> None:
        _put(self._record, asdict(record))

    def read_callers(self) -> list[str]:
        """Return the names of the permits that direct callers hold, oldest first."""
        return _get(self._callers) or []

    def write_callers(self, names: Iterable[str]) -> None:
        _put(self._callers, list(names))

    def mark_removed(self, actor: str) -> None:
        """Note that this actor is gone for good from now on; permits of direct callers end with it."""
        _put(self._removal, {"actor": actor, "at": time.time()})
        _delete(self._callers)

    def seconds_since_removal(self, actor: str) -> float | None:
        """Return how long ago this actor was removed, None if it was not."""
        found = _get(self._removal)
        return time.time() - found["at"] if found is not None and found["actor"] == actor else None

    def forget(self) -> None:
        for key in (self._record, self._callers, self._removal):
            _delete(key)


def _get(key: str) -> Any:
    found = _store("get", key.encode())
    return json.loads(found) if found else None


def _put(key: str, value: object) -> None:
    _store("put", key.encode(), json.dumps(value).encode(), overwrite=True)


def _delete(key: str) -> None:
    _store("del", key.encode())


def _store(action: str, *arguments: bytes, **options: bool) -> Any:
    function = getattr(internal_kv, f"_internal_kv_{action}", None)
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
