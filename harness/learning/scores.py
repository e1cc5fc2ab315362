"""Scores of steps by group, as trained and without lost samples, with how far chance moves them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .dumps import DumpedStep

# A group is eight numbers: the same four of its samples without the tool, and of those with it.
_WIDTH = 8
_WITHOUT_TOOL = 0
_WITH_TOOL = 4
_KINDS = (_WITHOUT_TOOL, _WITH_TOOL)
"""Where the numbers of a kind of samples begin."""
_SAMPLES, _SCORE, _HEALTHY, _HEALTHY_SCORE = range(4)
"""The numbers of a kind: how many samples there are, the sum of their scores, how many of them are
healthy, and the sum of their scores."""

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
            kind = _WITH_TOOL if sample.ended.calls else _WITHOUT_TOOL
            sums[kind + _SAMPLES] += 1
            sums[kind + _SCORE] += sample.score
            if not sample.lost:
                sums[kind + _HEALTHY] += 1
                sums[kind + _HEALTHY_SCORE] += sample.score
        return cls(step.step, array("d", [value for sums in groups.values() for value in sums]))

    def groups(self) -> Iterator[array[float]]:
        for at in range(0, len(self.sums), _WIDTH):
            yield self.sums[at : at + _WIDTH]


@dataclass(frozen=True, slots=True)
class _Kind:
    """The samples of a segment that used the tool, or those that did not."""

    place: int
    """Where its numbers begin in a group."""
    samples: float
    score: float
    healthy: float
    own_mean: float | None
    """The mean score of its healthy samples; None if there are none."""
    borrowed_mean: float | None
    """The mean of other steps, for a kind of which hardly a healthy sample is left."""
    is_borrowed: bool
    """Does the mean of other steps stand for its lost samples, if that is known?"""

    @classmethod
    def of(cls, total: Sequence[float], place: int, otherwise: float | None) -> _Kind:
        samples = total[place + _SAMPLES]
        healthy = total[place + _HEALTHY]
        own_mean = total[place + _HEALTHY_SCORE] / healthy if healthy else None
        has_none = own_mean is None and samples > 0
        has_few = otherwise is not None and healthy < min(samples, _FEWEST_HEALTHY)
        return cls(
            place=place,
            samples=samples,
            score=total[place + _SCORE],
            healthy=healthy,
            own_mean=own_mean,
            borrowed_mean=otherwise,
            is_borrowed=has_none or has_few,
        )

    @property
    def _mean(self) -> float | None:
        return self.borrowed_mean if self.is_borrowed else self.own_mean

    @property
    def is_known(self) -> bool:
        """Is there a mean for all its samples?"""
        return self._mean is not None or not self.samples

    @property
    def used_mean(self) -> float:
        """What its samples would score if none was lost; 0 if nothing is known of that."""
        return self._mean or 0.0

    def influence_of(self, group: Sequence[float], samples: float) -> float:
        """Return what its samples of one group add to the healthy score of the segment."""
        members = group[self.place + _SAMPLES]
        influence = members * self.used_mean / samples
        if self.healthy and not self.is_borrowed:
            healthy = group[self.place + _HEALTHY]
            residue = group[self.place + _HEALTHY_SCORE] - self.used_mean * healthy
            influence += self.samples / samples * residue / self.healthy
        return influence


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
    """Of the score, of the gap between the healthy score and the score, and of the healthy score:
    squares of group sums, so that siblings may resemble each other."""
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
        total = _total(steps)
        kinds = [
            _Kind.of(total, place, mean) for place, mean in zip(_KINDS, otherwise, strict=True)
        ]
        samples = sum(kind.samples for kind in kinds)
        score = 0.0
        healthy = None
        if samples:
            score = sum(kind.score for kind in kinds) / samples
            if all(kind.is_known for kind in kinds):
                healthy = sum(kind.samples * kind.used_mean for kind in kinds) / samples
        variances = _variances(steps, kinds, samples, score)
        without_tool, with_tool = kinds
        return cls(
            first=steps[0].step,
            last=steps[-1].step,
            samples=samples,
            lost=samples - sum(kind.healthy for kind in kinds),
            score=score,
            healthy=healthy,
            score_variance=variances.score,
            gap_variance=variances.gap,
            healthy_variance=variances.healthy,
            means=(without_tool.own_mean, with_tool.own_mean),
            is_borrowed=healthy is not None and any(kind.is_borrowed for kind in kinds),
        )


def _total(steps: Sequence[StepScores]) -> list[float]:
    """Add up the numbers of all groups."""
    total = [0.0] * _WIDTH
    for scores in steps:
        for group in scores.groups():
            for place, value in enumerate(group):
                total[place] += value
    return total


class _Variances(NamedTuple):
    score: float
    gap: float
    healthy: float


def _variances(
    steps: Sequence[StepScores], kinds: Sequence[_Kind], samples: float, score: float
) -> _Variances:
    """Return the variances of score, gap and healthy score, by the influence of each group; a
    borrowed mean has none here."""
    if not samples:
        return _Variances(0.0, 0.0, 0.0)
    healthy = sum(kind.samples / samples * kind.used_mean for kind in kinds)
    of_score = of_gap = of_healthy = 0.0
    count = 0
    for scores in steps:
        for group in scores.groups():
            members = group[_WITHOUT_TOOL + _SAMPLES] + group[_WITH_TOOL + _SAMPLES]
            group_score = group[_WITHOUT_TOOL + _SCORE] + group[_WITH_TOOL + _SCORE]
            on_score = (group_score - score * members) / samples
            on_healthy = -healthy * members / samples
            for kind in kinds:
                on_healthy += kind.influence_of(group, samples)
            of_score += on_score**2
            of_gap += (on_healthy - on_score) ** 2
            of_healthy += on_healthy**2
            count += 1
    correction = count / (count - 1) if count > 1 else 1.0
    return _Variances(of_score * correction, of_gap * correction, of_healthy * correction)


def spread(variance: float) -> float:
    """Half of the interval in which a value lies with 95 %, if its errors are normal."""
    return 1.96 * math.sqrt(variance)
