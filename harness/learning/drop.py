"""What explains a drop of the score: lost calls, or not.

The largest drop is looked for by itself; if none is sure, the steps that hold most of the lost
samples are compared with those before them. The parts of a drop have closed-form intervals (95 %,
errors of groups), so the same dump always gives the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import Any

from .scores import Segment, StepScores, spread

_SURE = 4.5
"""How many standard errors a drop must have (chosen: hundreds of stretches are tried, and noise
reaches 3 in most trainings)."""
_LEAST = 0.02
"""The least drop, as a share of the range of scores (chosen: below it nobody asks)."""
_TINY = 1e-9
"""The least standard error: where all groups agree, any drop is sure."""
_BEFORE = 5
"""Steps before a drop that it is compared with, at least (chosen)."""
_ALL = 0.8
_NONE = 0.2
"""Shares of a drop from which on, and up to which, lost calls explain it or do not (chosen)."""
_MOST_LOST = 0.9
"""Share of the lost samples that a stretch of steps must hold to be named (chosen)."""
_FEWEST_STEPS = 4
"""Steps that a dump must have for that: of fewer, hardly one is less than half (chosen)."""
MOST_UNKNOWN = 0.05
"""Share of samples without evidence from which on nothing is concluded (as the gate's default)."""


class DropVerdict(StrEnum):
    """What explains a drop."""

    NO_DROP = "no_drop"
    LOST_CALLS = "lost_calls"
    PARTLY = "partly"
    NOT_INFRASTRUCTURE = "not_infrastructure"
    UNKNOWN = "unknown"
    """Too many samples have no evidence, or too few are left to compare with."""


@dataclass(frozen=True, slots=True)
class Drop:
    """The largest drop, and the part of it that lost calls explain."""

    verdict: DropVerdict
    before: Segment
    after: Segment
    drop: float = 0.0
    drop_interval: float = 0.0
    """Half of the 95 % interval, as for the others."""
    explained: float | None = None
    explained_interval: float = 0.0
    healthy_drop: float | None = None
    healthy_interval: float = 0.0
    unknown: float = 0.0
    """Share of the samples after it that have no evidence."""

    def as_data(self) -> dict[str, Any]:
        def interval(value: float | None, half: float) -> list[float] | None:
            return None if value is None else [round(value - half, 6), round(value + half, 6)]

        return {
            "verdict": self.verdict.value,
            "before": [self.before.first, self.before.last],
            "after": [self.after.first, self.after.last],
            "score_before": round(self.before.score, 6),
            "score_after": round(self.after.score, 6),
            "lost_share_after": round(self.after.lost / max(1.0, self.after.samples), 6),
            "drop": round(self.drop, 6),
            "drop_interval": interval(self.drop, self.drop_interval),
            "explained": None if self.explained is None else round(self.explained, 6),
            "explained_interval": interval(self.explained, self.explained_interval),
            "healthy_drop": None if self.healthy_drop is None else round(self.healthy_drop, 6),
            "healthy_interval": interval(self.healthy_drop, self.healthy_interval),
            "unknown_share": round(self.unknown, 6),
            "borrowed": self.after.is_borrowed,
        }


def explain(
    steps: Sequence[StepScores],
    unknown: Mapping[int, float],
    between: tuple[tuple[int, int], tuple[int, int]] | None = None,
) -> Drop | None:
    """Return what explains the largest drop, or that between two stretches of steps.

    ``unknown`` is the share of samples of each step without evidence. None if there is nothing to
    compare.
    """
    if between is not None:
        parts = [[s for s in steps if first <= s.step <= last] for first, last in between]
        if not parts[0] or not parts[1]:
            return None
        return _explained(parts[0], parts[1], unknown, is_given=True)
    if len(steps) < 2:
        return None
    found = _largest(steps)
    if found is not None:
        start, cut, end = found
        return _explained(steps[start:cut], steps[cut:end], unknown)
    whole = Segment.of(steps)
    return _at_the_losses(steps, unknown) or Drop(DropVerdict.NO_DROP, whole, whole)


def stretch_of_losses(lost: Sequence[float]) -> tuple[int, int] | None:
    """Return the first and last place of the shortest stretch of steps with most of the lost
    samples; None if it is more than half of all steps."""
    total = sum(lost)
    best = (0, len(lost) - 1)
    start = 0
    inside = 0.0
    for end, count in enumerate(lost):
        inside += count
        while start < end and inside - lost[start] >= _MOST_LOST * total:
            inside -= lost[start]
            start += 1
        if inside >= _MOST_LOST * total and end - start < best[1] - best[0]:
            best = start, end
    if not total or len(lost) < _FEWEST_STEPS or 2 * (best[1] - best[0] + 1) > len(lost):
        return None
    return best


def _at_the_losses(steps: Sequence[StepScores], unknown: Mapping[int, float]) -> Drop | None:
    """Return the drop where most samples were lost, if it is more than chance and lost calls
    explain some of it.

    The stretch was not chosen by its scores, so that an ordinary interval suffices.
    """
    stretch = stretch_of_losses([Segment.of([step]).lost for step in steps])
    if stretch is None:
        return None
    first, last = stretch
    length = last - first + 1
    before = steps[max(0, first - max(length, _BEFORE)) : first]
    if not before:
        return None
    drop = _explained(before, steps[first : last + 1], unknown)
    is_explained = drop.verdict in (DropVerdict.LOST_CALLS, DropVerdict.PARTLY)
    return drop if is_explained and drop.drop > drop.drop_interval else None


def _explained(
    steps_before: Sequence[StepScores],
    steps_after: Sequence[StepScores],
    unknown: Mapping[int, float],
    is_given: bool = False,
) -> Drop:
    before = Segment.of(steps_before)
    after = Segment.of(steps_after, before.means)
    drop = before.score - after.score
    shares = [share for step, share in unknown.items() if after.first <= step <= after.last]
    mean_unknown = sum(shares) / len(shares) if shares else 0.0
    explained = None
    healthy_drop = None
    if before.healthy is not None and after.healthy is not None:
        healthy_drop = before.healthy - after.healthy
        explained = drop - healthy_drop
    drop_interval = spread(before.score_variance + after.score_variance)
    explained_interval = spread(before.gap_variance + after.gap_variance)
    if after.is_borrowed:  # then what lost calls cost is the drop itself
        explained_interval = max(explained_interval, drop_interval)
    healthy_interval = spread(before.healthy_variance + after.healthy_variance)
    if drop <= 0 and is_given:
        verdict = DropVerdict.NO_DROP
    elif explained is None or healthy_drop is None or mean_unknown > MOST_UNKNOWN:
        verdict = DropVerdict.UNKNOWN
    else:
        verdict = _verdict(
            explained / drop if drop > 0 else 0.0,
            is_explained=explained > explained_interval,
            is_healthy_drop=healthy_drop > healthy_interval,
        )
    return Drop(
        verdict=verdict,
        before=before,
        after=after,
        drop=drop,
        drop_interval=drop_interval,
        explained=explained,
        explained_interval=explained_interval,
        healthy_drop=healthy_drop,
        healthy_interval=healthy_interval,
        unknown=mean_unknown,
    )


def _verdict(share: float, *, is_explained: bool, is_healthy_drop: bool) -> DropVerdict:
    """Conclude from the share of a drop that lost calls explain.

    The flags say whether what lost calls did, and how far the healthy samples fell, is more than
    chance.
    """
    if share >= _ALL:
        return DropVerdict.LOST_CALLS
    if share <= _NONE:
        return DropVerdict.NOT_INFRASTRUCTURE if is_healthy_drop else DropVerdict.UNKNOWN
    if is_healthy_drop:
        return DropVerdict.PARTLY if is_explained else DropVerdict.UNKNOWN
    return DropVerdict.LOST_CALLS if is_explained else DropVerdict.UNKNOWN


def _largest(steps: Sequence[StepScores]) -> tuple[int, int, int] | None:
    """Return where the surest drop begins, cuts and ends: places of steps before and after it."""
    parts = [Segment.of([step]) for step in steps]
    counts = [part.samples for part in parts]
    sums = list(accumulate((part.score * part.samples for part in parts), initial=0.0))
    sizes = list(accumulate(counts, initial=0.0))
    errors = [part.score_variance * part.samples**2 for part in parts]
    pooled = sum(errors) / max(1.0, sizes[-1])
    squares = list(
        accumulate(
            (max(error, pooled * count) for error, count in zip(errors, counts, strict=True)),
            initial=0.0,
        )
    )
    scores = [part.score for part in parts if part.samples]
    least = _LEAST * (max(scores, default=0.0) - min(scores, default=0.0))

    def mean_of(first: int, last: int) -> tuple[float, float]:
        size = max(1.0, sizes[last] - sizes[first])
        return (sums[last] - sums[first]) / size, (squares[last] - squares[first]) / size**2

    best = None
    surest = _SURE
    for length in _lengths(len(steps)):
        for cut in range(1, len(steps) - length + 1):
            start = max(0, cut - max(length, _BEFORE))
            before, before_error = mean_of(start, cut)
            after, after_error = mean_of(cut, cut + length)
            error = max(math.sqrt(before_error + after_error), _TINY)
            if before - after <= least:
                continue
            if (before - after) / error > surest:
                surest = (before - after) / error
                best = start, cut, cut + length
    return best


def _lengths(count: int) -> list[int]:
    """Lengths of stretches that are tried, up to half of the training; long ones are a quarter
    apart."""
    found = [1]
    while found[-1] < count // 2:
        found.append(max(found[-1] + 1, found[-1] * 5 // 4))
    return found
