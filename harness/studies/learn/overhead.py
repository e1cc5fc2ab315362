"""What requests take beside their programs: the time that the server reports is the program's, the
rest is a queue, the start of the program, or the way there and back."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .attempts import SHORTEST, InFlight, TimedAttempt
from .distributions import Fit, fit
from .server_fit import FEWEST_TELLING, LIGHT, telling_places, times_of
from .slowness import Slowness

_WORTH_A_RULE = 0.005
"""Seconds by the median from which on the rest is worth a rule (chosen: less is the network's)."""
_LEAST_SHARE = 0.02
"""The share of the time of all answers from which on it is (chosen, as for waits)."""
_MUCH = 0.2
"""The share of the time beside programs from which on it is a cause (chosen)."""
_LONG = 0.05
"""Seconds of it (chosen: a network over some distance takes as long)."""
_AS_LONG = 0.75
"""How much of the usual rest requests must have that met a light load, for it not to come from the
load (chosen)."""


@dataclass(frozen=True, slots=True)
class Overhead:
    """Seconds of requests that neither their programs nor a model of the server explain."""

    delay: Fit
    took: float
    """Seconds of a request, by the median."""
    ran: float
    """Seconds of its program, as the server reports them, by the median."""
    share: float
    """The share of the time of all answers."""
    is_fixed: bool
    """It was the same for requests that met a light load."""

    @property
    def is_long(self) -> bool:
        """Does it matter for what should be set?"""
        return self.share >= _MUCH and self.delay.median >= _LONG

    @property
    def says(self) -> str:
        """What is known of it."""
        if self.is_fixed:
            return f"{self._beside}; under a light load they took as long"
        return (
            f"{self._beside}; whether that is a queue in the server, the cost of starts or the way "
            "there, this log does not tell"
        )

    @property
    def _beside(self) -> str:
        return (
            f"requests took {self.took:.3g} s, their programs {self.ran:.3g} s of it (by the "
            "median, as the server reports it)"
        )


def without_overhead(
    slowness: Slowness, answered: Sequence[TimedAttempt], everything: Sequence[TimedAttempt]
) -> tuple[Slowness, Overhead | None]:
    """Take what the server reports for the time of programs; return what is left of requests, if
    that is worth a rule."""
    times = times_of(answered)
    is_explained = {"workers", "spawn_cost"} & slowness.model.keys()
    if not answered or not times.is_reported or is_explained:
        return slowness, None
    base = slowness.base
    rest = times.delays
    if "cores" not in slowness.model:
        runs = [times.runs[place] for place in slowness.kept]
        base = tuple(min(own, run) for own, run in zip(slowness.base, runs, strict=True))
        rest = [own - run for own, run in zip(slowness.base, base, strict=True)]
    if not _is_noticed(rest, times.took):
        return slowness, None
    kept = [answered[place] for place in slowness.kept]
    telling = telling_places(kept, everything)
    if "cores" in slowness.model:
        telling = _little_loaded(telling, kept, everything)
    overhead = Overhead(
        delay=fit(rest),
        took=statistics.median(times.took),
        ran=statistics.median(times.runs),
        share=sum(rest) / sum(times.took),
        is_fixed=_is_fixed(rest, telling),
    )
    return replace(slowness, base=base), overhead


def _is_noticed(rest: Sequence[float], took: Sequence[float]) -> bool:
    if not rest or sum(rest) < _LEAST_SHARE * sum(took):
        return False
    return statistics.median(rest) >= _WORTH_A_RULE


def _little_loaded(
    places: Sequence[int], kept: Sequence[TimedAttempt], everything: Sequence[TimedAttempt]
) -> list[int]:
    """Return those of the places that met a light load for as long as they took: of many that are
    sent together the first ones wait for nobody, but share the cores with all others."""
    busy = InFlight((request.began, request.ended) for request in everything)
    loads = [busy.mean(request.began, request.ended) for request in kept]
    light = LIGHT * statistics.median(loads)
    found = [place for place in places if loads[place] <= light]
    return found if len(found) >= FEWEST_TELLING else []


def _is_fixed(rest: Sequence[float], telling: Sequence[int]) -> bool:
    """Had requests that met a light load about as much of it as others?"""
    if not telling:
        return False
    usual = max(statistics.median(rest), SHORTEST)
    return statistics.median(rest[place] for place in telling) >= _AS_LONG * usual
