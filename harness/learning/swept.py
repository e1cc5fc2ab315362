"""What a sweep over trainings says: what each setting taught, and which of them end closest to the
twin without faults, as far as the seeds can tell."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Sequence
from statistics import NormalDist, fmean, stdev
from typing import Any, TextIO

from sfusion_tools.wording import counted

from ..reports.html import LearningPage, PageTable
from ..terminal import ProgressReporter
from .train_summary import TOY
from .trained import Trained, at

Setting = tuple[Sequence[str], Trained]
"""The values of the axes, and what was learned."""
SWEEP_HEAD = (
    "healthy score",
    "P(tool)",
    "P(several)",
    "lost",
    "of these unseen",
    "promises not held",
)
_CHANCE = 0.05
"""Settings whose difference is at least this likely by chance are not told apart (usual)."""
_FEWEST = 6
"""With fewer seeds, no difference can be less likely than that: 2 / 2^5 = 0.06."""
_EXACT = 12
"""Up to so many seeds, all signs of the differences are tried; beyond, a bell is near enough."""
_SAME = 0.005
"""Differences that are smaller than what is printed are none."""


def rows_of(settings: Sequence[Setting]) -> list[list[str]]:
    """A row for each setting of a sweep: its values and what was learned."""
    rows = []
    for values, trained in settings:
        not_held = sum(tally.not_held > 0 for tally in trained.promises.values())
        row = [
            *values,
            str(trained.last(at("healthy"))),
            str(trained.last(at("tool"))),
            str(trained.last(at("several"))),
            f"{trained.lost_share:.0%}",
            f"{trained.unseen_share:.0%}",
            f"{not_held} of {len(trained.promises)}",
        ]
        rows.append(row)
    return rows


def why_not(trained: Trained) -> str:
    """Return why a setting cannot be compared; empty if it can."""
    if any(len(run.steps) < trained.part.steps for run in trained.runs):
        return "did not come to the end with all seeds"
    unknown = [promise for promise, tally in trained.promises.items() if "unknown" in tally.states]
    return f"{unknown[0]} is unknown" if unknown else ""


def distances(trained: Trained) -> list[float]:
    """How far it ends from the twin, for each seed: by how good it is, and by what it does."""
    keys = ("healthy", "tool", "several")
    by_key = [[abs(difference) for difference in trained.differences(key)] for key in keys]
    return [sum(seed) for seed in zip(*by_key, strict=True)]


def by_chance(differences: Sequence[float]) -> float:
    """Return how likely a mean at least this far from 0 is if each difference could as well have
    the other sign."""
    found = abs(fmean(differences))
    if found < _SAME:
        return 1.0
    count = len(differences)
    if count > _EXACT:
        spread = stdev(differences) / math.sqrt(count)
        return 2 * (1 - NormalDist().cdf(found / spread)) if spread else 0.0
    ways = list(itertools.product((1, -1), repeat=count))
    reached = [abs(fmean(map(operator.mul, signs, differences))) for signs in ways]
    return sum(mean >= found - 1e-12 for mean in reached) / len(ways)


def closest(settings: Sequence[Setting]) -> list[Setting]:
    """Return the settings that end closest to the twin: the best, and those that the seeds cannot
    tell from it."""
    judged = [setting for setting in settings if not why_not(setting[1])]
    if not judged:
        return []
    best = min(judged, key=lambda setting: round(fmean(distances(setting[1])), 2))
    mine = distances(best[1])
    found = []
    for setting in judged:
        pairs = zip(distances(setting[1]), mine, strict=True)
        if setting is best or by_chance([other - own for other, own in pairs]) >= _CHANCE:
            found.append(setting)
    return found


def verdict(settings: Sequence[Setting], axes: Sequence[str]) -> str:
    """Name the settings that end closest to the twin, and what could not be compared."""
    found = closest(settings)
    if not found:
        first = why_not(settings[0][1])
        return f"no setting can be compared: {_named(settings[0], axes)} {first}"
    judged = [setting for setting in settings if not why_not(setting[1])]
    left_out = [
        f"; {_named(setting, axes)} is not compared ({why_not(setting[1])})"
        for setting in settings
        if why_not(setting[1])
    ]
    seeds = len(found[0][1].runs)
    if len(judged) > 1 and len(found) == len(judged):
        what = f"the settings cannot be told apart with {counted(seeds, 'seed')}"
        if seeds < _FEWEST:
            what += f"; at least {_FEWEST} are needed for any difference"
    else:
        names = " and ".join(_named(setting, axes) for setting in found)
        what = f"closest to the training without faults: {names}"
        if len(found) > 1:
            what += f" (not told apart with {counted(seeds, 'seed')})"
    return what + "".join(left_out)


def _played(settings: Sequence[Setting]) -> str:
    """Say which settings went through the stack."""
    through = sum(bool(trained.runs[0].why_stack) for _, trained in settings)
    if through == len(settings):
        return "All settings were played through the stack."
    if not through:
        return "All settings were played without the stack, which would draw the same."
    return f"{through} of {counted(len(settings), 'setting')} were played through the stack."


def _named(setting: Setting, axes: Sequence[str]) -> str:
    return ", ".join(f"{axis}={value}" for axis, value in zip(axes, setting[0], strict=True))


def tell_sweep(settings: Sequence[Setting], axes: Sequence[str], title: str, out: TextIO) -> None:
    """Print the table and the verdict."""
    shown = ProgressReporter(out, 0, "")
    seeds = len(settings[0][1].runs)
    shown.print(
        f"{title}: {counted(len(settings), 'setting')} with {counted(seeds, 'seed')} each", "bold"
    )
    shown.table(rows_of(settings), (*axes, *SWEEP_HEAD), texts=len(axes))
    shown.print()
    shown.print(verdict(settings, axes), "bold")
    shown.print(_played(settings), "dim")
    shown.print(TOY, "dim")


def render_sweep(settings: Sequence[Setting], axes: Sequence[str], title: str, about: str) -> str:
    """Return the page."""
    table = PageTable(
        "All settings",
        (
            "Medians over the seeds at the end, and 10 % to 90 %; unseen: lost samples of "
            "which the trainer does not know."
        ),
        (*axes, *SWEEP_HEAD),
        rows_of(settings),
        texts=len(axes),
    )
    seeds = len(settings[0][1].runs)
    facts = [("settings", str(len(settings))), ("seeds each", str(seeds))]
    return LearningPage(
        what=f"sweep of {title}",
        headline=verdict(settings, axes),
        about=about,
        facts=facts,
        sentences=[_played(settings), TOY],
        legend="",
        charts=[],
        tables=[table],
    ).render()


def sweep_data(settings: Iterable[Setting], axes: Sequence[str], title: str) -> dict[str, Any]:
    """Return the answer for ``--json``."""
    listed = [
        {
            "values": dict(zip(axes, values, strict=True)),
            **trained.summary(),
            "not_held": [name for name, tally in trained.promises.items() if tally.not_held],
        }
        for values, trained in settings
    ]
    return {"sweep": 1, "scenario": title, "axes": list(axes), "settings": listed}
