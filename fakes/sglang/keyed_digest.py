"""Random draws that are pure functions of a seed and the keys of the decision.

There is no shared stream of random numbers, so one draw never changes another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

Key = str | int | bytes
T = TypeVar("T")

_DRAW_BYTES = 8
"""How many bytes of a digest a draw uses. Chosen: 64 bits are more than the 53 of a float."""
_DRAW_VALUES = float(1 << (8 * _DRAW_BYTES))


def digest(*keys: Key, size: int = 16) -> bytes:
    """Return a digest of the keys that also depends on where one key ends and the next begins."""
    state = hashlib.blake2b(digest_size=size)
    for key in keys:
        data = key if isinstance(key, bytes) else str(key).encode("utf-8", "surrogatepass")
        state.update(f"{type(key).__name__}:{len(data)}:".encode())
        state.update(data)
    return state.digest()


def hex_id(length: int, *keys: Key) -> str:
    """Return ``length`` hexadecimal digits that look like a random id."""
    return digest(*keys, size=32).hex()[:length]


def draw(*keys: Key) -> float:
    """Return a number in [0, 1)."""
    return _drawn_integer(keys) / _DRAW_VALUES


def whole(low: int, high: int, *keys: Key) -> int:
    """Return an integer between two bounds, both included."""
    return low + _drawn_integer(keys) % (high - low + 1)


def pick(items: Sequence[T], *keys: Key) -> T:
    """Return one of the items."""
    return items[whole(0, len(items) - 1, *keys)]


def _drawn_integer(keys: tuple[Key, ...]) -> int:
    return int.from_bytes(digest(*keys, size=_DRAW_BYTES), "big")
