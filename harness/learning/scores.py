"""Scores of steps by group, as trained and without lost samples, with how far chance moves them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from .dumps import DumpedStep

_WIDTH = 8
"""Numbers of a group: for samples without and with the tool each, how many there are, their
scores, how many are healthy, and their scores."""


_FEWEST_HEALTHY = 10
"""Healthy samples of a kind that can stand for its lost ones (chosen: the mean of ten scores of 0
or 1 is known to about 0.3)."""


@dataclass(slots=True)
class StepScores:
    """The sums of each group of a step."""

    step: int
    sums: array[float]

    @classmethod
    def of(cls, step: DumpedStep) -> StepScores:
        groups: dict[Hashable, list[float]] = {}
        for sample in step.samples:
            sums = groups.setdefault(sample.group, [0.0] * _WIDTH)
            at = 4 if sample.ended.calls else 0
            sums[at] += 1
            sums[at + 1] += sample.score
            if not sample.lost:
                sums[at + 2] += 1
                sums[at + 3] += sample.score
        return cls(step.step, array("d", [value for sums in groups.values() for value in sums]))

    def groups(self) -> Iterator[array[float]]:
        for at in range(0, len(self.sums), _WIDTH):
            yield self.sums[at : at + _WIDTH]


@dataclass(frozen=True, slots=True)
class Segment:
    """Some steps together.

    ``healthy`` is the score if lost samples had scored as the healthy ones that, like them, used
    the tool or did not: else an outage of the tool would be compared with samples that never
    needed it.
    """

    first: int
    last: int
    samples: float
    lost: float
    score: float
    healthy: float | None
    """None if no healthy sample is left of a kind that was lost."""
    score_variance: float
    gap_variance: float
    healthy_variance: float
    """Of the score, of the healthy score and of their difference: squares of group sums, so that
    siblings may resemble each other."""
    means: tuple[float | None, float | None] = (None, None)
    """The mean score of healthy samples without and with the tool; None if there are none."""
    is_borrowed: bool = False
    """Too few healthy samples of a kind were left, so the mean of other steps stands for it."""

    @property
    def name(self) -> str:
        if self.first == self.last:
            return f"step {self.first}"
        return f"steps {self.first} to {self.last}"

    @classmethod
    def of(
        cls,
        steps: Sequence[StepScores],
        otherwise: tuple[float | None, float | None] = (None, None),
    ) -> Segment:
        """Put steps together; ``otherwise`` stands for kinds of which hardly a healthy sample is
        left."""
        total = [0.0] * _WIDTH
        for scores in steps:
            for group in scores.groups():
                for place, value in enumerate(group):
                    total[place] += value
        samples = total[0] + total[4]
        score = (total[1] + total[5]) / samples if samples else 0.0
        own = [total[at + 3] / total[at + 2] if total[at + 2] else None for at in (0, 4)]
        lacking = []
        for kind, at in enumerate((0, 4)):
            few = total[at + 2] < min(total[at], _FEWEST_HEALTHY) and otherwise[kind] is not None
            lacking.append(few or (own[kind] is None and total[at] > 0))
        used = [otherwise[kind] if lacks else own[kind] for kind, lacks in enumerate(lacking)]
        is_known = all(used[kind] is not None or not total[at] for kind, at in enumerate((0, 4)))
        means = [mean or 0.0 for mean in used]
        healthy = None
        if is_known and samples:
            healthy = (total[0] * means[0] + total[4] * means[1]) / samples
        variances = _variances(steps, total, score, means, lacking)
        return cls(
            first=steps[0].step,
            last=steps[-1].step,
            samples=samples,
            lost=samples - total[2] - total[6],
            score=score,
            healthy=healthy,
            score_variance=variances[0],
            gap_variance=variances[1],
            healthy_variance=variances[2],
            means=(own[0], own[1]),
            is_borrowed=healthy is not None and any(lacking),
        )


def _variances(
    steps: Sequence[StepScores],
    total: Sequence[float],
    score: float,
    means: Sequence[float],
    borrowed: Sequence[bool],
) -> tuple[float, float, float]:
    """Return the variances of score, gap and healthy score, by the influence of each group; a
    borrowed mean has none here."""
    samples = total[0] + total[4]
    if not samples:
        return 0.0, 0.0, 0.0
    shares = [total[0] / samples, total[4] / samples]
    healthy = shares[0] * means[0] + shares[1] * means[1]
    of_score = of_gap = of_healthy = 0.0
    count = 0
    for scores in steps:
        for group in scores.groups():
            members = group[0] + group[4]
            trained = (group[1] + group[5] - score * members) / samples
            clean = (group[0] * means[0] + group[4] * means[1] - healthy * members) / samples
            for place, at in enumerate((0, 4)):
                if total[at + 2] and not borrowed[place]:
                    residue = group[at + 3] - means[place] * group[at + 2]
                    clean += shares[place] * residue / total[at + 2]
            of_score += trained**2
            of_gap += (clean - trained) ** 2
            of_healthy += clean**2
            count += 1
    correction = count / (count - 1) if count > 1 else 1.0
    return of_score * correction, of_gap * correction, of_healthy * correction


def spread(variance: float) -> float:
    """Half of the interval in which a value lies with 95 %, if its errors are normal."""
    return 1.96 * math.sqrt(variance)
