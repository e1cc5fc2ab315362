"""The prefix cache of the engine."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b

_BLOCK = 16


class PrefixCache:
    """Remembers the prefixes that were served, by digests of blocks, so that only new text takes memory."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def match(self, ids: Sequence[int]) -> int:
        """Return how many leading tokens are known; never all of them, as the last one must be computed."""
        known = 0
        for number, block in enumerate(_blocks(ids), start=1):
            if block not in self._seen:
                break
            known = number * _BLOCK
        return min(known, max(len(ids) - 1, 0))

    def add(self, ids: Sequence[int]) -> None:
        """Remember a sequence and all its prefixes."""
        self._seen.update(_blocks(ids))

    def clear(self) -> None:
        self._seen.clear()


def _blocks(ids: Sequence[int]) -> Iterator[bytes]:
    before = b""
    for start in range(0, len(ids) - _BLOCK + 1, _BLOCK):
        block = struct.pack(f"<{_BLOCK}q", *ids[start : start + _BLOCK])
        before = blake2b(before + block, digest_size=16).digest()
        yield before
