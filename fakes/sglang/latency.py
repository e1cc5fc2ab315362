"""How long an engine takes for the first token and for each further one, also under load."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sfusion.fakes.sglang.keyed_digest import Key, draw


@dataclass(frozen=True, slots=True)
class Latency:
    """A latency model; all zero by default, so that tests do not wait.

    ``first_token`` seconds plus ``per_prompt_token`` for each prompt token not in the cache, then ``per_token`` for
    each further token. ``load`` stretches both: with k requests running they take 1 + load * (k - 1) times as long.
    ``spread`` is the sigma of a log-normal factor drawn for each request from its keys.
    """

    first_token: float = 0.0
    per_token: float = 0.0
    per_prompt_token: float = 0.0
    load: float = 0.0
    spread: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"latency: {name} must be a finite number of at least 0, found {value}")

    def factor(self, running: int, *keys: Key) -> float:
        """Return how much slower this request is than an average one without load."""
        luck = math.exp(self.spread * _normal(*keys)) if self.spread else 1.0
        return luck * (1.0 + self.load * max(running - 1, 0))

    def to_first_token(self, new_prompt_tokens: int, factor: float) -> float:
        """Return the seconds from the request to its first token."""
        return factor * (self.first_token + self.per_prompt_token * new_prompt_tokens)

    def for_tokens(self, count: int, factor: float) -> float:
        """Return the seconds that ``count`` further tokens take."""
        return factor * self.per_token * count


def _normal(*keys: Key) -> float:
    # The Box-Muller transform.
    one, two = draw(*keys, "normal", 1), draw(*keys, "normal", 2)
    return math.sqrt(-2.0 * math.log(1.0 - one)) * math.cos(2.0 * math.pi * two)
