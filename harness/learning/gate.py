"""The gate: may a training go on, or does somebody have to look? Pure.

Every quantity is judged over the whole dump, over the worst window of steps and over the worst
step, because a long training would hide a short outage. What cannot be judged does not pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sfusion_tools.errors import near

from ..errors import BadOption
from .figures import PoisonFigures, Weighting

WINDOW = 10
"""Steps of a window (chosen: an outage of some minutes falls into a few steps)."""
BASE = 0.05
"""The default of ``--fail-above``: a share of lost samples over the whole training. In the real
trainings of docs/learning.md, the most sensitive model kept its long tool use with 10 % of calls
lost and scored 0, and lost it with 20 %, so this leaves a factor of two."""
_SPANS = {"all": 1.0, "window": 2.0, "step": 5.0}
"""What a limit is multiplied by: ten bad steps in a hundred or one very bad step are the same
amount of harm as a small share everywhere (chosen)."""
_MOVED = 2.0
"""Healthy samples move further than samples are lost: one lost sample of eight moves the other
seven, by about an eighth of the spread each (chosen: so that both limits break together)."""
_COVERAGE = 0.95
"""The least share of samples with evidence (chosen: as much may be unknown as may be lost)."""
_FEWEST = 2
"""Samples or groups of a single step that can break a limit (chosen: one proves nothing)."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """Something that a limit is set for."""

    name: str
    about: str
    """As in "12 % of the samples were lost"."""
    part: Callable[[PoisonFigures, Weighting], float]
    whole: Callable[[PoisonFigures, Weighting], float]
    breaks: bool = True
    """Above the limit, the gate fails; otherwise it cannot judge."""
    factor: float = 1.0
    counts: bool = True
    """The part is a number of samples or groups."""


QUANTITIES = (
    Quantity(
        "lost",
        "of the samples were lost",
        lambda figures, _: figures.lost + figures.unscored_lost,
        lambda figures, _: figures.samples + figures.unscored,
    ),
    Quantity(
        "weight",
        "of the gradient's weight comes from lost samples",
        lambda figures, by: figures.weight_lost.by(by),
        lambda figures, by: figures.weight.by(by),
        counts=False,
    ),
    Quantity(
        "dead",
        "of the groups can teach nothing, because lost samples left at most one",
        lambda figures, _: figures.dead_groups,
        lambda figures, _: figures.groups,
    ),
    Quantity(
        "moved",
        "is how far lost samples moved the advantages of healthy ones",
        lambda figures, _: figures.moved_by,
        lambda figures, _: max(figures.healthy_weight, figures.moved_by),
        factor=_MOVED,
        counts=False,
    ),
    Quantity(
        "unclear",
        "of the samples that used the tool are unclear: nothing says whether their call was lost",
        lambda figures, _: figures.unclear,
        lambda figures, _: figures.users,
        breaks=False,
    ),
    Quantity(
        "missing",
        "of the samples are missing from groups of the usual size; were they removed before the "
        "dump?",
        lambda figures, _: figures.missing,
        lambda figures, _: figures.samples + figures.missing,
        breaks=False,
    ),
)

LIMITS = tuple(f"{quantity.name}.{span}" for quantity in QUANTITIES for span in _SPANS)
"""The names of all limits but ``coverage``."""


def read_limits(base: float | None, texts: Sequence[str]) -> dict[str, float]:
    """Return the limits; raise BadOption for one that makes no sense."""
    start = BASE if base is None else base
    limits = {"coverage": _COVERAGE}
    for quantity in QUANTITIES:
        for span, times in _SPANS.items():
            limits[f"{quantity.name}.{span}"] = min(1.0, start * quantity.factor * times)
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadOption(f"--limit {text}: expected NAME=SHARE, as in lost.step=0.25")
        if name not in limits:
            raise BadOption(
                f"--limit {text}: {near(name, limits)}; expected coverage or one of "
                f"{', '.join(LIMITS)}"
            )
        limits[name] = _share(text, value)
    return limits


def _share(text: str, value: str) -> float:
    try:
        share = float(value)
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:
        raise BadOption(f"--limit {text}: give a share from 0 to 1, such as 0.05")
    return share


@dataclass(frozen=True, slots=True)
class GateFinding:
    """A reason not to pass."""

    name: str
    """The limit, or what is wrong with the dump."""
    text: str
    breaks: bool
    """True: lost calls did too much. False: nobody can tell."""
    value: float | None = None
    limit: float | None = None

    def as_data(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "text": self.text,
            "fails": self.breaks,
            "value": None if self.value is None else round(self.value, 6),
            "limit": self.limit,
        }


def reasons_not_to_pass(
    steps: Sequence[tuple[int, PoisonFigures]],
    total: PoisonFigures,
    weighting: Weighting,
    limits: Mapping[str, float],
    *,
    reward_told: int = 0,
    doubts: Sequence[str] = (),
) -> list[GateFinding]:
    """Return every reason not to pass; ``doubts`` are what is wrong with the dump itself."""
    found = list(_unknown(total, limits["coverage"], reward_told))
    found += [GateFinding("dump", doubt, breaks=False) for doubt in doubts]
    for quantity in QUANTITIES:
        for span in _SPANS:
            limit = limits[f"{quantity.name}.{span}"]
            worst = _worst(quantity, span, steps, total, weighting)
            if worst is None or worst[0] <= limit:
                continue
            share, where = worst
            name = f"{quantity.name}.{span}"
            text = f"{where}{share:.1%} {quantity.about} (limit {name} {limit:.3g})"
            found.append(GateFinding(name, text, quantity.breaks, share, limit))
    return found


def nothing_tells(total: PoisonFigures, reward_told: int) -> bool:
    """Is there no tool message, no key and no event log that could show a lost call?"""
    return not (total.lost or total.unscored_lost or total.users or reward_told)


def _unknown(total: PoisonFigures, least: float, reward_told: int) -> Iterator[GateFinding]:
    """Say whether there is anything to judge by."""
    if not total.samples:
        yield GateFinding("score", "no sample has a score", breaks=False)
        return
    if nothing_tells(total, reward_told) and least > 0:
        yield GateFinding(
            "coverage",
            "nothing says whether calls were lost: no tool message, no key and no event log "
            "(--events, --key lost=KEY, --key reward_lost=KEY)",
            breaks=False,
        )
    if total.users and total.covered < least * total.users:
        yield GateFinding(
            "coverage",
            f"there is evidence for {total.covered:,} of {total.users:,} samples that used the "
            f"tool (limit coverage {least:.3g})",
            breaks=False,
            value=total.covered / total.users,
            limit=least,
        )


def _worst(
    quantity: Quantity,
    span: str,
    steps: Sequence[tuple[int, PoisonFigures]],
    total: PoisonFigures,
    weighting: Weighting,
) -> tuple[float, str] | None:
    """Return the largest share of a quantity in a span, and where it is."""
    if span == "all":
        whole = quantity.whole(total, weighting)
        return (quantity.part(total, weighting) / whole, "") if whole else None
    length = 1 if span == "step" else WINDOW
    if len(steps) <= length:
        return None
    parts = [quantity.part(figures, weighting) for _, figures in steps]
    wholes = [quantity.whole(figures, weighting) for _, figures in steps]
    best = None
    for start in range(len(steps) - length + 1):
        part = sum(parts[start : start + length])
        whole = sum(wholes[start : start + length])
        if not whole or (quantity.counts and part < _FEWEST):
            continue
        if best is None or part / whole > best[0]:
            where = f"step {steps[start][0]}"
            if length > 1:
                where = f"steps {steps[start][0]} to {steps[start + length - 1][0]}"
            best = part / whole, f"{where}: "
    return best


def exit_code(findings: Sequence[GateFinding]) -> int:
    """1 if lost calls did too much, 2 if nobody can tell, 0 if the gate passes."""
    if any(finding.breaks for finding in findings):
        return 1
    return 2 if findings else 0
