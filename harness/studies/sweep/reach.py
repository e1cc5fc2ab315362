"""How far a scenario reaches that was made from a log, or from a measurement: nothing beyond that
is recommended. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...lab.scenarios.parts import ObservedPart
from .grid import are_numbers, label
from .recommendation import Recommendation

RATE_LIMIT = "tools.rate_limit"
_CALLERS = "load.concurrency"


@dataclass(frozen=True, slots=True)
class KnownRange:
    """The values that a log, or a measurement, tells about."""

    least: float
    most: float | None
    """None: it tells about all that are higher."""

    def has(self, value: float) -> bool:
        return self.least <= value and (self.most is None or value <= self.most)

    @property
    def is_single(self) -> bool:
        """With only one value there is nothing to compare, not even that one."""
        return self.least == self.most

    def __str__(self) -> str:
        if self.most is None:
            return f"{self.least:g} and more"
        return f"{self.least:g}" if self.is_single else f"{self.least:g} to {self.most:g}"


def known_limits(observed: ObservedPart, setting: Mapping[str, Any]) -> KnownRange:
    """Return the values of ``rate_limit`` that are known; ``setting`` has values by their path.

    With more callers than were seen, those are known that keep their calls from the server.
    """
    least, most = observed.rate_limit
    if _has_more_callers(observed, setting):
        return KnownRange(least, observed.callers)
    return KnownRange(least, most)


def tells_about(observed: ObservedPart | None, setting: Mapping[str, Any]) -> bool:
    """Does what a log showed, or a measurement, reach as far as this setting?"""
    if observed is None:
        return True
    limit = setting.get(RATE_LIMIT)
    if limit is not None:
        return known_limits(observed, setting).has(limit)
    return not _has_more_callers(observed, setting)


def _has_more_callers(observed: ObservedPart, setting: Mapping[str, Any]) -> bool:
    callers = setting.get(_CALLERS)
    return callers is not None and observed.callers is not None and callers > observed.callers


def within(
    recommendation: Recommendation,
    known: KnownRange,
    observed: ObservedPart,
    values: Sequence[Any],
) -> Recommendation:
    """Withdraw a recommendation beyond what a log showed; say what it does not tell.

    Where the log tells about more than the model recommends, the least of these ``values`` that it
    tells about does no harm.
    """
    value = recommendation.value
    unknown = observed.unknown
    if value is None or not are_numbers([value]):
        return recommendation
    if observed.compared and known.most == observed.rate_limit[1]:
        return _as_logged(recommendation, known, unknown, values)
    if known.has(value) and not known.is_single:
        told = filter(None, (recommendation.sensitivity, unknown))
        return replace(recommendation, sensitivity="; ".join(told))
    reason = (
        f"simulated, {label(value)} would do, but what the simulation was made from tells only "
        f"about {known}"
    )
    if known.has(value):
        reason = (
            f"what the simulation was made from tells only about {known}, with nothing to compare"
        )
    enough = min(filter(known.has, values), default=None)
    if value < known.least and enough is not None and not known.is_single:
        return replace(
            recommendation,
            value=enough,
            is_bounded=True,
            reason=f"{label(enough)} does as much as more; {reason}",
            sensitivity=unknown,
            loss=0.0,
        )
    return _withdrawn(recommendation, reason, unknown)


def _as_logged(
    recommendation: Recommendation, known: KnownRange, unknown: str, values: Sequence[Any]
) -> Recommendation:
    """Recommend what did as much in the log itself, whatever the simulation says."""
    enough = min(filter(known.has, values), default=None)
    if enough is None:
        reason = f"in the log {known} did best, and no such value was tried"
        return _withdrawn(recommendation, reason, unknown)
    return replace(
        recommendation,
        value=enough,
        is_bounded=True,
        reason=f"{label(enough)} is the lowest value here that did as much in the log",
        sensitivity=unknown,
        loss=0.0,
    )


def beyond(recommendation: Recommendation, unknown: str) -> Recommendation:
    """Withdraw a recommendation under a condition of which a log tells nothing."""
    reason = "what the simulation was made from tells nothing about this condition"
    return _withdrawn(recommendation, reason, unknown)


def _withdrawn(recommendation: Recommendation, reason: str, unknown: str) -> Recommendation:
    return replace(recommendation, value=None, reason=reason, sensitivity=unknown, cannot_tell=True)
