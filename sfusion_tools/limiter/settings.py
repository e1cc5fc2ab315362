"""The settings of a limiter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeGuard

from sfusion_tools.errors import ConfigError

DEFAULT_RATE_LIMIT = 10
"""That of verl's original design."""

DEFAULT_LEASE = 30.0
"""Chosen: longer than a process stalls in practice, and short beside a step of training."""


@dataclass(frozen=True, slots=True)
class LimiterSettings:
    """Raises ConfigError at construction when a value makes no sense."""

    rate_limit: int = DEFAULT_RATE_LIMIT
    """How many attempts may be in flight at once in the whole cluster."""
    lease: float = DEFAULT_LEASE
    """Seconds that a permit lives without renewal: the longest that a dead client can keep it."""
    per_second: float | None = None
    """Attempts that may start per second, beside the in-flight limit; None for no such limit."""
    burst: int | None = None
    """How many of them may start at once after an idle period; None for one second's worth."""
    adaptive: bool = False
    """Go below rate_limit on 429, and up again while calls succeed."""

    @classmethod
    def of(cls, limits: int | dict[str, Any]) -> LimiterSettings:
        """Accept a bare rate_limit as well as a dict of fields."""
        return cls(**limits) if isinstance(limits, dict) else cls(limits)

    def __post_init__(self) -> None:
        if not _is_count(self.rate_limit):
            raise ConfigError(
                f"rate_limit must be a whole number of at least 1, found {self.rate_limit!r}; "
                "to run without a limiter set enable_global_rate_limit: false"
            )
        _positive("lease", self.lease)
        if self.per_second is not None:
            _positive("per_second", self.per_second)
        if self.burst is not None:
            if self.per_second is None:
                raise ConfigError(
                    "burst is set but per_second is not; burst has no meaning without it"
                )
            if not _is_count(self.burst):
                raise ConfigError(
                    f"burst must be a whole number of at least 1, found {self.burst!r}"
                )


def _positive(name: str, value: object) -> None:
    if not _is_number(value) or not 0 < value < math.inf:
        raise ConfigError(f"{name} must be a positive number, found {value!r}")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
