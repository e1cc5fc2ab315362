"""Chance without a random stream: every draw is a pure function of a seed and the names it is drawn for."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

Draw = Callable[[str], float]
"""Gives a number in [0, 1) for a name; the same name always gives the same number."""


def uniform(seed: int, *keys: object) -> float:
    """A number in [0, 1) that depends on nothing but the seed and the keys."""
    text = "\x1f".join([str(seed), *map(str, keys)])
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)


def drawer(seed: int, *keys: object) -> Draw:
    """Bind a seed and leading keys, so that a caller only adds what the draw is for."""
    return lambda name: uniform(seed, *keys, name)


def normal(draw: Draw, name: str) -> float:
    """A standard normal number out of two uniform draws (Box-Muller)."""
    radius = math.sqrt(-2.0 * math.log(1.0 - draw(f"{name}/radius")))
    return radius * math.cos(2.0 * math.pi * draw(f"{name}/angle"))
