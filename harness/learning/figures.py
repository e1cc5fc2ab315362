"""Figures of one step, or of several: what was lost, and what it weighed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from sfusion_tools.advantages import Handling

from .evidence import LossPlace


class Weighting(StrEnum):
    """What a sample weighs in the loss beside its advantage."""

    SAMPLES = "samples"
    """Every sample counts alike, as in a loss that is averaged over sequences first."""
    TOKENS = "tokens"
    """Every token counts alike, as in verl's default, token-mean."""


@dataclass(slots=True)
class Weight:
    """A sum of |advantage|, by sample and by token."""

    samples: float = 0.0
    tokens: float = 0.0

    def add(self, other: Weight) -> None:
        self.samples += other.samples
        self.tokens += other.tokens

    def by(self, weighting: Weighting) -> float:
        return self.tokens if weighting is Weighting.TOKENS else self.samples


@dataclass(slots=True)
class HandlingFigures:
    """Sums of what one handling would have done."""

    weight: Weight = field(default_factory=Weight)
    tool: float = 0.0
    several: float = 0.0
    """Net push on using the tool and on calling it more than once, times the samples of its
    step."""
    silent: int = 0
    """Groups with a lost sample in which no advantage is left."""
    alone: int = 0
    """Samples in the loss without siblings, so that their baseline is 0."""

    def add(self, other: HandlingFigures) -> None:
        self.weight.add(other.weight)
        self.tool += other.tool
        self.several += other.several
        self.silent += other.silent
        self.alone += other.alone


@dataclass(slots=True)
class PlaceFigures:
    """The samples that were lost in one place."""

    lost: int = 0
    weight: Weight = field(default_factory=Weight)
    """What they carry as trained."""

    def add(self, other: PlaceFigures) -> None:
        self.lost += other.lost
        self.weight.add(other.weight)


def _by_handling() -> dict[Handling, HandlingFigures]:
    return {handling: HandlingFigures() for handling in Handling}


def _by_place() -> dict[LossPlace, PlaceFigures]:
    return {place: PlaceFigures() for place in LossPlace}


@dataclass(slots=True)
class PoisonFigures:
    """Sums over the samples of one step, or of several."""

    samples: int = 0
    groups: int = 0
    unscored: int = 0
    unscored_lost: int = 0
    users: int = 0
    """Samples that used the tool."""
    users_score: float = 0.0
    covered: int = 0
    """Of these, samples with evidence of how their calls ended."""
    calls: int = 0
    lost_calls: int = 0
    lost: int = 0
    """Samples whose last call, or whose reward, was lost."""
    recovered: int = 0
    unclear: int = 0
    """Samples of which nothing says whether their last call was lost."""
    missing: int = 0
    """Samples that groups of the usual size would have beside those here."""
    tokenless: int = 0
    """Samples whose number of tokens is not known."""
    score: float = 0.0
    weight: Weight = field(default_factory=Weight)
    """Sum of |advantage| as trained."""
    weight_lost: Weight = field(default_factory=Weight)
    weight_recovered: Weight = field(default_factory=Weight)
    siblings: int = 0
    """Healthy samples with a lost sibling, those whose advantage moved by it, and by how much in
    all."""
    moved: int = 0
    moved_by: float = 0.0
    healthy_weight: float = 0.0
    """Sum of |advantage| of the healthy samples without the lost ones."""
    hit_groups: int = 0
    dead_groups: int = 0
    """Groups of which lost samples left at most one, so that nothing can be learned from them."""
    orphans: int = 0
    """Healthy samples whose siblings were all lost."""
    only_lost: int = 0
    """Groups whose only signal comes from lost samples."""
    by: dict[Handling, HandlingFigures] = field(default_factory=_by_handling)
    places: dict[LossPlace, PlaceFigures] = field(default_factory=_by_place)
    outcomes: Counter[str] = field(default_factory=Counter)
    sizes: Counter[int] = field(default_factory=Counter)
    """How many groups have how many samples."""

    def weight_share(self, weighting: Weighting) -> float:
        """The share of the gradient's weight that lost samples carry as trained."""
        total = self.weight.by(weighting)
        return self.weight_lost.by(weighting) / total if total else 0.0

    @property
    def lost_share(self) -> float:
        return self.lost / self.samples if self.samples else 0.0

    @property
    def moved_share(self) -> float:
        """How far lost samples moved the healthy ones, compared with what those weigh."""
        if not self.healthy_weight:
            return 1.0 if self.moved_by else 0.0
        return min(1.0, self.moved_by / self.healthy_weight)

    @property
    def mean_score(self) -> float | None:
        return self.score / self.samples if self.samples else None

    def push(self, handling: Handling, what: str = "tool") -> float:
        """The net push on ``tool`` or ``several``, as a mean over all samples."""
        figures = self.by[handling]
        total = figures.tool if what == "tool" else figures.several
        return total / self.samples if self.samples else 0.0

    def add(self, other: PoisonFigures) -> None:
        for part in fields(self):
            mine = getattr(self, part.name)
            more = getattr(other, part.name)
            if isinstance(mine, Weight):
                mine.add(more)
            elif part.name in ("by", "places"):
                for key, figures in more.items():
                    mine[key].add(figures)
            else:
                setattr(self, part.name, mine + more)

    def as_data(self, weighting: Weighting) -> dict[str, Any]:
        """Return everything for ``--json``; weights are those of the weighting."""
        data: dict[str, Any] = {}
        for part in fields(self):
            value = getattr(self, part.name)
            if isinstance(value, Weight):
                value = value.by(weighting)
            if isinstance(value, int | float):
                data[part.name] = round(value, 6)
        mean = self.mean_score
        data["score"] = None if mean is None else round(mean, 6)
        data["lost_share"] = round(self.lost_share, 6)
        data["weight_share"] = round(self.weight_share(weighting), 6)
        data["moved_share"] = round(self.moved_share, 6)
        data["outcomes"] = dict(self.outcomes.most_common())
        data["handlings"] = {
            handling.value: {
                "push_tool": round(self.push(handling), 6),
                "push_several": round(self.push(handling, "several"), 6),
                "weight": round(figures.weight.by(weighting), 6),
                "groups_without_signal": figures.silent,
                "alone": figures.alone,
            }
            for handling, figures in self.by.items()
        }
        return data
