"""What lost calls did to the advantages: figures that add up over steps, and the groups that
were hit most. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ..core.advantages import SIGNAL, Estimator, Handled, Handling, handled, push
from .dumps import DumpedStep

MOST_GROUPS = 20
"""Groups that are shown (chosen)."""


@dataclass(slots=True)
class HandlingFigures:
    """Sums of what one handling would have done."""

    weight: float = 0.0
    """Sum of |advantage| in the loss."""
    tool: float = 0.0
    several: float = 0.0
    """Net push on using the tool and on calling it more than once, times the samples of its
    step."""
    silent: int = 0
    """Groups with a lost sample in which no advantage is left."""
    alone: int = 0
    """Samples in the loss without siblings, so that their baseline is 0."""

    def add(self, other: HandlingFigures) -> None:
        for part_field in fields(self):
            setattr(
                self,
                part_field.name,
                getattr(self, part_field.name) + getattr(other, part_field.name),
            )


@dataclass(slots=True)
class PoisonFigures:
    """Sums over the samples of one step, or of several."""

    samples: int = 0
    groups: int = 0
    unscored: int = 0
    unscored_lost: int = 0
    users: int = 0
    calls: int = 0
    lost_calls: int = 0
    lost: int = 0
    """Samples whose last call was lost."""
    recovered: int = 0
    unclear: int = 0
    score: float = 0.0
    weight: float = 0.0
    """Sum of |advantage| as trained."""
    weight_lost: float = 0.0
    weight_recovered: float = 0.0
    siblings: int = 0
    """Healthy samples with a lost sibling, those whose advantage moved by it, and by how much in
    all."""
    moved: int = 0
    moved_by: float = 0.0
    hit_groups: int = 0
    orphans: int = 0
    """Healthy samples whose siblings were all lost."""
    only_lost: int = 0
    """Groups whose only signal comes from lost samples."""
    by: dict[Handling, HandlingFigures] = field(
        default_factory=lambda: {handling: HandlingFigures() for handling in Handling}
    )
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def weight_share(self) -> float:
        """The share of the gradient's weight that lost samples carry as trained."""
        return self.weight_lost / self.weight if self.weight else 0.0

    @property
    def lost_share(self) -> float:
        return self.lost / self.samples if self.samples else 0.0

    def push(self, handling: Handling, what: str = "tool") -> float:
        """The net push on ``tool`` or ``several``, as a mean over all samples."""
        return getattr(self.by[handling], what) / self.samples if self.samples else 0.0

    def add(self, other: PoisonFigures) -> None:
        for part_field in fields(self):
            mine = getattr(self, part_field.name)
            more = getattr(other, part_field.name)
            if part_field.name == "by":
                for handling, figures in more.items():
                    mine[handling].add(figures)
            else:
                setattr(self, part_field.name, mine + more)

    def as_data(self) -> dict[str, Any]:
        plain = {
            part_field.name: getattr(self, part_field.name)
            for part_field in fields(self)
            if part_field.name not in ("by", "outcomes")
        }
        mean = self.score / self.samples if self.samples else None
        return {
            **{
                key: round(value, 6) if isinstance(value, float) else value
                for key, value in plain.items()
            },
            "score": None if mean is None else round(mean, 6),
            "lost_share": round(self.lost_share, 6),
            "weight_share": round(self.weight_share, 6),
            "outcomes": dict(self.outcomes.most_common()),
            "handlings": {
                handling.value: {
                    "push_tool": round(self.push(handling), 6),
                    "push_several": round(self.push(handling, "several"), 6),
                    "weight": round(figures.weight, 6),
                    "groups_without_signal": figures.silent,
                    "alone": figures.alone,
                }
                for handling, figures in self.by.items()
            },
        }


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
        rows = zip(self.lines, self.scores, self.lost, self.trained, self.excluded, strict=True)
        keys = ("line", "score", "lost", "as_trained", "excluded")
        listed = [
            dict(zip(keys, (a, b, c, round(d, 6), round(e, 6)), strict=True))
            for a, b, c, d, e in rows
        ]
        return {
            "harm": round(self.harm, 6),
            "step": self.step,
            "file": str(self.file),
            "samples": listed,
        }


@dataclass
class Poison:
    """The figures of some dumps: all together, step by step, and the groups that were hit most."""

    estimator: Estimator = Estimator.GRPO
    bounds: tuple[float, float] = (0.0, 1.0)
    total: PoisonFigures = field(default_factory=PoisonFigures)
    steps: list[tuple[int, PoisonFigures]] = field(default_factory=list)
    outside: int = 0
    """Scores beyond the bounds."""
    worst: list[HitGroup] = field(default_factory=list)
    """The groups that were hit most, the worst first."""

    def add(self, step: DumpedStep) -> None:
        """Count a step."""
        figures, groups = step_figures(step, self.estimator, self.bounds)
        self.outside += sum(
            not self.bounds[0] <= sample.score <= self.bounds[1] for sample in step.samples
        )
        self.steps.append((step.step, figures))
        self.total.add(figures)
        hit = [group for group in groups if group.harm > SIGNAL]
        self.worst = sorted([*self.worst, *hit], key=lambda group: group.harm, reverse=True)[
            :MOST_GROUPS
        ]


def step_figures(
    step: DumpedStep, estimator: Estimator, bounds: tuple[float, float] = (0.0, 1.0)
) -> tuple[PoisonFigures, list[HitGroup]]:
    """Return the figures of a step, and its groups with lost samples."""
    samples = step.samples
    lost = [sample.lost for sample in samples]
    found = _handlings(step, estimator, bounds)
    places: dict[Hashable, list[int]] = {}
    for place, sample in enumerate(samples):
        places.setdefault(sample.group, []).append(place)
    hit = [group for group in places.values() if any(lost[place] for place in group)]
    figures = _counted(step, found[Handling.ZERO].advantages)
    figures.groups = len(places)
    figures.hit_groups = len(hit)
    used = [sample.ended.calls > 0 for sample in samples]
    several = [sample.ended.calls > 1 for sample in samples]
    for handling, answer in found.items():
        figures.by[handling] = _handling_figures(
            answer=answer, used=used, several=several, groups=places.values(), hit=hit
        )
    return figures, [_hit_group(step, group, found, figures) for group in hit]


def _handlings(
    step: DumpedStep, estimator: Estimator, bounds: tuple[float, float]
) -> dict[Handling, Handled]:
    """Return the advantages of a step's samples for each way to handle lost ones."""
    samples = step.samples
    tokens = None
    if not any(math.isnan(sample.tokens) for sample in samples):
        tokens = [sample.tokens for sample in samples]
    return {
        handling: handled(
            scores=[sample.score for sample in samples],
            groups=[sample.group for sample in samples],
            lost=[sample.lost for sample in samples],
            handling=handling,
            estimator=estimator,
            bounds=bounds,
            tokens=tokens,
        )
        for handling in Handling
    }


def _counted(step: DumpedStep, trained: Sequence[float]) -> PoisonFigures:
    """Count what happened in a step, and the weight that its samples had in training."""
    samples = step.samples
    weights = [abs(advantage) for advantage in trained]
    of_samples = list(zip(weights, samples, strict=True))
    recovered = [weight for weight, sample in of_samples if sample.recovered]
    return PoisonFigures(
        samples=len(samples),
        unscored=step.unscored,
        unscored_lost=step.unscored_lost,
        users=sum(sample.ended.calls > 0 for sample in samples),
        calls=sum(sample.ended.calls for sample in samples),
        lost_calls=sum(sample.ended.lost for sample in samples),
        lost=sum(sample.lost for sample in samples),
        recovered=len(recovered),
        unclear=sum(sample.ended.unclear for sample in samples),
        score=sum(sample.score for sample in samples),
        weight=sum(weights),
        weight_lost=sum(weight for weight, sample in of_samples if sample.lost),
        weight_recovered=sum(recovered, 0.0),
        outcomes=Counter(outcome for sample in samples for outcome in sample.ended.outcomes),
    )


def _handling_figures(
    answer: Handled,
    used: Sequence[bool],
    several: Sequence[bool],
    groups: Any,
    hit: Sequence[Sequence[int]],
) -> HandlingFigures:
    values = answer.advantages
    count = len(answer.advantages)
    return HandlingFigures(
        weight=sum(map(abs, values)),
        tool=push(values, used) * count,
        several=push(values, several) * count,
        silent=sum(all(abs(values[place]) <= SIGNAL for place in group) for group in hit),
        alone=sum(sum(answer.in_loss[place] for place in group) == 1 for group in groups),
    )


def _hit_group(
    step: DumpedStep, group: Sequence[int], found: dict[Handling, Handled], figures: PoisonFigures
) -> HitGroup:
    """Describe a group with lost samples, and count what they did to its healthy ones."""
    trained = [found[Handling.ZERO].advantages[place] for place in group]
    clean = [found[Handling.EXCLUDE].advantages[place] for place in group]
    samples = [step.samples[place] for place in group]
    healthy = [
        (advantage, other)
        for advantage, other, sample in zip(trained, clean, samples, strict=True)
        if not sample.lost
    ]
    figures.siblings += len(healthy)
    figures.orphans += len(healthy) == 1
    figures.moved += sum(abs(advantage - other) > SIGNAL for advantage, other in healthy)
    figures.moved_by += sum(abs(advantage - other) for advantage, other in healthy)
    agree = len({sample.score for sample in samples if not sample.lost}) < 2
    figures.only_lost += agree and any(abs(advantage) > SIGNAL for advantage in trained)
    return HitGroup(
        harm=sum(abs(advantage - other) for advantage, other in zip(trained, clean, strict=True)),
        step=step.step,
        file=step.file,
        lines=tuple(sample.line for sample in samples),
        scores=tuple(sample.score for sample in samples),
        lost=tuple(sample.lost for sample in samples),
        trained=tuple(trained),
        excluded=tuple(clean),
    )
