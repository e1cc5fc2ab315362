"""What lost calls did to the advantages: figures that add up over steps, and the groups that
were hit most. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sfusion_tools.advantages import SIGNAL, Estimator, Handled, Handling, handled, push

from .dumps import DumpedSample, DumpedStep
from .figures import HandlingFigures, PoisonFigures, Weight, Weighting
from .scores import StepScores

MOST_GROUPS = 20
"""Groups that are shown (chosen)."""


@dataclass(frozen=True, slots=True)
class HitGroup:
    """A group that lost samples: how far they moved its advantages, and where it stands."""

    harm: float
    """Sum over its samples of |advantage as trained - advantage without the lost ones|."""
    step: int
    file: Path
    lines: tuple[int, ...]
    scores: tuple[float, ...]
    lost: tuple[bool, ...]
    trained: tuple[float, ...]
    excluded: tuple[float, ...]

    @property
    def first(self) -> int:
        """The line of its first lost sample."""
        return self.lines[self.lost.index(True)]

    def as_data(self) -> dict[str, Any]:
        samples = []
        for place, line in enumerate(self.lines):
            samples.append(
                {
                    "line": line,
                    "score": self.scores[place],
                    "lost": self.lost[place],
                    "as_trained": round(self.trained[place], 6),
                    "excluded": round(self.excluded[place], 6),
                }
            )
        return {
            "harm": round(self.harm, 6),
            "step": self.step,
            "file": str(self.file),
            "samples": samples,
        }


@dataclass
class Poison:
    """The figures of some dumps: all together, step by step, and the groups that were hit most."""

    estimator: Estimator = Estimator.GRPO
    bounds: tuple[float, float] = (0.0, 1.0)
    trained: Handling = Handling.ZERO
    """What the trainer did with lost samples."""
    weighting: Weighting = Weighting.SAMPLES
    total: PoisonFigures = field(default_factory=PoisonFigures)
    steps: list[tuple[int, PoisonFigures]] = field(default_factory=list)
    scores: list[StepScores] = field(default_factory=list)
    """The scores of each step by group, for the question what explains a drop."""
    outside: int = 0
    """Scores beyond the bounds."""
    worst: list[HitGroup] = field(default_factory=list)
    """The groups that were hit most, the worst first."""

    def add(self, step: DumpedStep) -> None:
        """Count a step."""
        figures, groups = step_figures(step, self.estimator, self.bounds, self.trained)
        low, high = self.bounds
        self.outside += sum(not low <= sample.score <= high for sample in step.samples)
        self.steps.append((step.step, figures))
        self.scores.append(StepScores.of(step))
        hit = [group for group in groups if group.harm > SIGNAL]
        by_harm = sorted([*self.worst, *hit], key=lambda group: group.harm, reverse=True)
        self.worst = by_harm[:MOST_GROUPS]

    def finish(self) -> None:
        """Put the steps in order, and count what only all of them together show."""
        self.steps.sort(key=lambda pair: pair[0])
        self.scores.sort(key=lambda scores: scores.step)
        self._count_missing([figures for _, figures in self.steps])
        for _, figures in self.steps:
            self.total.add(figures)

    def _count_missing(self, steps: Sequence[PoisonFigures]) -> None:
        """Count the samples that groups and steps of the usual size would have had."""
        sizes: Counter[int] = Counter()
        for figures in steps:
            sizes += figures.sizes
        size = _usual(sizes)
        if size is None or size < 2:
            return
        groups = _usual(Counter(figures.sizes.total() for figures in steps)) or 0
        for figures in steps:
            lacks = ((size - own, count) for own, count in figures.sizes.items())
            figures.missing = sum(max(0, lack) * count for lack, count in lacks)
            if figures is not steps[-1]:  # the training may be running
                figures.missing += max(0, groups - figures.sizes.total()) * size


_DOMINANT = 0.6
"""Share of groups that must have the same size before others count as incomplete, and of steps that
must have as many groups (chosen)."""


def _usual(counts: Counter[int]) -> int | None:
    """Return the number that most have; None if they differ anyway."""
    if not counts:
        return None
    number, count = counts.most_common(1)[0]
    return number if count >= _DOMINANT * counts.total() else None


def step_figures(
    step: DumpedStep,
    estimator: Estimator,
    bounds: tuple[float, float] = (0.0, 1.0),
    trained: Handling = Handling.ZERO,
) -> tuple[PoisonFigures, list[HitGroup]]:
    """Return the figures of a step, and its groups with lost samples."""
    samples = step.samples
    lost = [sample.lost for sample in samples]
    found = _handlings(step, estimator, bounds)
    places: dict[Hashable, list[int]] = {}
    for place, sample in enumerate(samples):
        places.setdefault(sample.group, []).append(place)
    hit = [group for group in places.values() if any(lost[place] for place in group)]

    figures = _counted(step, found[trained].advantages)
    figures.groups = len(places)
    figures.sizes = _sizes(step, places)
    figures.hit_groups = len(hit)
    figures.dead_groups = sum(
        sum(not lost[place] for place in group) <= 1 and len(group) > 1 for group in hit
    )
    clean = found[Handling.EXCLUDE].advantages
    figures.healthy_weight = sum(map(abs, clean))
    used = [sample.ended.calls > 0 for sample in samples]
    several = [sample.ended.calls > 1 for sample in samples]
    for handling, answer in found.items():
        if not hit and handling is not Handling.ZERO:  # nothing was lost: all are the same
            figures.by[handling] = figures.by[Handling.ZERO]
            continue
        figures.by[handling] = _handling_figures(
            answer=answer,
            samples=samples,
            used=used,
            several=several,
            groups=places.values(),
            hit=hit,
        )
    groups = [_hit_group(step, group, found[trained].advantages, clean, figures) for group in hit]
    return figures, groups


def _sizes(step: DumpedStep, places: Mapping[Hashable, Sequence[int]]) -> Counter[int]:
    """Return how many groups have how many samples, with or without a score."""
    sizes = Counter({group: len(members) for group, members in places.items()})
    sizes.update(step.unscored_groups)
    return Counter(sizes.values())


def _handlings(
    step: DumpedStep, estimator: Estimator, bounds: tuple[float, float]
) -> dict[Handling, Handled]:
    """Return the advantages of a step's samples for each way to handle lost ones.

    Where nothing is lost, they are all the same.
    """
    samples = step.samples
    tokens = None
    if not any(math.isnan(sample.tokens) for sample in samples):
        tokens = [sample.tokens for sample in samples]
    scores = [sample.score for sample in samples]
    groups = [sample.group for sample in samples]
    lost = [sample.lost for sample in samples]

    def answer(handling: Handling) -> Handled:
        return handled(
            scores=scores,
            groups=groups,
            lost=lost,
            handling=handling,
            estimator=estimator,
            bounds=bounds,
            tokens=tokens,
        )

    if not any(lost):
        same = answer(Handling.ZERO)
        return dict.fromkeys(Handling, same)
    return {handling: answer(handling) for handling in Handling}


def _weight(advantages: Sequence[float], samples: Sequence[DumpedSample]) -> Weight:
    """Sum up |advantage|, by sample and by token; samples without tokens count one each."""
    by_sample = 0.0
    by_token = 0.0
    for advantage, sample in zip(advantages, samples, strict=True):
        size = abs(advantage)
        by_sample += size
        by_token += size if math.isnan(sample.tokens) else size * sample.tokens
    return Weight(by_sample, by_token)


def _counted(step: DumpedStep, trained: Sequence[float]) -> PoisonFigures:
    """Count what happened in a step, and the weight that its samples had in training."""
    figures = PoisonFigures(
        samples=len(step.samples),
        unscored=step.unscored,
        unscored_lost=step.unscored_lost,
        weight=_weight(trained, step.samples),
    )
    for advantage, sample in zip(trained, step.samples, strict=True):
        ended = sample.ended
        figures.score += sample.score
        figures.tokenless += math.isnan(sample.tokens)
        figures.calls += ended.calls
        figures.lost_calls += ended.lost
        if ended.calls:
            figures.users += 1
            figures.users_score += sample.score
            figures.covered += ended.is_covered
            figures.unclear += ended.unclear
        if not sample.lost and not sample.recovered:
            continue
        figures.outcomes.update(ended.outcomes)
        weight = _weight([advantage], [sample])
        if sample.recovered:
            figures.recovered += 1
            figures.weight_recovered.add(weight)
        else:
            figures.lost += 1
            figures.weight_lost.add(weight)
            figures.places[ended.place].lost += 1
            figures.places[ended.place].weight.add(weight)
    return figures


def _handling_figures(
    answer: Handled,
    samples: Sequence[DumpedSample],
    used: Sequence[bool],
    several: Sequence[bool],
    groups: Iterable[Sequence[int]],
    hit: Sequence[Sequence[int]],
) -> HandlingFigures:
    values = answer.advantages
    count = len(values)
    return HandlingFigures(
        weight=_weight(values, samples),
        tool=push(values, used) * count,
        several=push(values, several) * count,
        silent=sum(all(abs(values[place]) <= SIGNAL for place in group) for group in hit),
        alone=sum(sum(answer.in_loss[place] for place in group) == 1 for group in groups),
    )


def _hit_group(
    step: DumpedStep,
    group: Sequence[int],
    trained: Sequence[float],
    clean: Sequence[float],
    figures: PoisonFigures,
) -> HitGroup:
    """Describe a group with lost samples, and count what they did to its healthy ones."""
    samples = [step.samples[place] for place in group]
    moves = [abs(trained[place] - clean[place]) for place in group]
    healthy = [move for move, sample in zip(moves, samples, strict=True) if not sample.lost]
    figures.siblings += len(healthy)
    figures.orphans += len(healthy) == 1
    figures.moved += sum(move > SIGNAL for move in healthy)
    figures.moved_by += sum(healthy)
    agree = len({sample.score for sample in samples if not sample.lost}) < 2
    figures.only_lost += agree and any(abs(trained[place]) > SIGNAL for place in group)
    return HitGroup(
        harm=sum(moves),
        step=step.step,
        file=step.file,
        lines=tuple(sample.line for sample in samples),
        scores=tuple(sample.score for sample in samples),
        lost=tuple(sample.lost for sample in samples),
        trained=tuple(trained[place] for place in group),
        excluded=tuple(clean[place] for place in group),
    )
