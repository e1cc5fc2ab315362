"""Random numbers without a stream.

Every draw is a pure function of a seed and of what it is drawn for.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

Draw = Callable[[str], float]
"""Returns a number in [0, 1) for a name, always the same one for the same name."""


def uniform(seed: int, *keys: object) -> float:
    """A number in [0, 1) that depends only on the seed and the keys."""
    text = "\x1f".join([str(seed), *map(str, keys)])
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    # A float has 53 bits of precision; 11 of the 64 are left over.
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)


def drawer(seed: int, *keys: object) -> Draw:
    """Bind a seed and leading keys; the caller adds what the draw is for."""
    return lambda name: uniform(seed, *keys, name)


def normal(draw: Draw, name: str) -> float:
    """A standard normal number from two uniform draws (Box-Muller)."""
    radius = math.sqrt(-2.0 * math.log(1.0 - draw(f"{name}/radius")))
    return radius * math.cos(2.0 * math.pi * draw(f"{name}/angle"))
