"""Did answers get slower the longer the server ran?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from sfusion.harness.studies.learn.attempts import LoggedRequest
from sfusion.harness.studies.learn.distributions import rounded
from sfusion.harness.studies.learn.slowness import SHORTEST, Slowness, rank_correlation

_FEWEST = 40
_BINS = 24


def find_degradation(
    answered: Sequence[LoggedRequest], durations: list[float], timed_out: Sequence[LoggedRequest]
) -> Slowness | None:
    """An extra delay that grows with time, up to some time or for as long as the log goes on."""
    # Where many requests timed out, those that were answered were the quick ones.
    first_lost = _from_when_lost(answered, timed_out)
    usable = [place for place, one in enumerate(answered) if one.began < first_lost]
    if len(usable) < _FEWEST:
        return None
    ends = max(one.began for one in answered)
    last = min(ends, first_lost)
    bins = [usable[len(usable) * k // _BINS : len(usable) * (k + 1) // _BINS] for k in range(_BINS)]
    times = [statistics.fmean(answered[place].began for place in one) for one in bins if one]
    medians = [statistics.median(durations[place] for place in one) for one in bins if one]
    if rank_correlation(times, medians) < 0.7 or last <= 0:
        return None
    best: tuple[float, float, float, float] | None = None
    for number in range(4, 21):
        over = last * number / 20
        growth = [min(1.0, at / over) for at in times]
        slope, start = _line(growth, medians)
        if slope <= 0 or start <= 0:
            continue
        error = sum((start + slope * g - m) ** 2 for g, m in zip(growth, medians, strict=True))
        if best is None or error < best[0]:
            best = error, over, start, slope
    if best is None or best[3] < 0.5 * best[2]:
        return None
    _, over, start, slope = best
    if timed_out and over >= 0.9 * last:  # it went on where no answer could show it
        longer = max(ends, max(one.began for one in timed_out))
        slope, over = slope * longer / over, longer
    added = [slope * min(1.0, one.began / over) for one in answered]
    logs = [math.log(d / (start + extra)) for d, extra in zip(durations, added, strict=True)]
    base = [max(durations[place] - added[place], SHORTEST) for place in usable]
    return Slowness(
        "degradation",
        tuple(base),
        tuple(usable),
        tuple(logs),
        what={"degrade": {"start": 0, "end": rounded(slope), "over": rounded(over)}},
        says=f"answers got slower by {rounded(slope):g} s within {rounded(over):g} s",
        evidence=f"median answer {medians[0]:.3g} s at the beginning and {medians[-1]:.3g} s "
        f"{times[-1]:.4g} s later (in {len(medians)} parts of the log, correlation "
        f"{rank_correlation(times, medians):.2f})",
        lost=min(1.0, sum(added) / sum(durations)),
    )


def _from_when_lost(answered: Sequence[LoggedRequest], timed_out: Sequence[LoggedRequest]) -> float:
    """The time from which on a third of the requests or more timed out."""
    flags = sorted([(one.began, False) for one in answered] + [(one.began, True) for one in timed_out])
    for place in range(len(flags) - 9):
        if flags[place][1] and sum(lost for _, lost in flags[place : place + 10]) > 3:
            return flags[place][0]
    return math.inf


def _line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    try:
        return statistics.linear_regression(x, y)
    except statistics.StatisticsError:
        return 0.0, 0.0
