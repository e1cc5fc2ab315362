"""A sweep over trainings: what each setting taught, and which of them comes closest to the twin without faults."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, TextIO

from sfusion.harness.lab.runs.tasks import Task
from sfusion.harness.lab.spreading import Workers
from sfusion.harness.learning.train_telling import SWEEP_HEAD, TOY, rows_of
from sfusion.harness.learning.trained import Trained, at, check_played, play_training
from sfusion.harness.reports.html import LearningPage, PageTable
from sfusion.harness.terminal import ProgressReporter
from sfusion_tools.wording import counted

Setting = tuple[Sequence[str], Trained]
"""The values of the axes, and what was learned."""


def play_settings(
    workers: Workers, tasks: Sequence[Task], settings: Sequence[Sequence[str]], out: TextIO
) -> list[Setting]:
    """Train every setting with all its seeds; ``tasks`` has those of the first setting first."""
    seeds = len(tasks) // len(settings)
    found: list[Setting] = []
    with ProgressReporter(out, len(tasks), "trainings") as shown:
        played = workers.map(play_training, tasks)
        for number, values in enumerate(settings):
            runs = []
            for run in islice(played, seeds):
                runs.append(run)
                shown.progress(number * seeds + len(runs))
            check_played(runs)
            part = tasks[number * seeds].scenario.training
            assert part is not None
            found.append((values, Trained(part, runs)))
    return found


def _distance(one: Trained) -> float:
    """How far it ends from the twin; trainings that did not come to the end are farther than any."""
    if any(len(run.steps) < one.part.steps for run in one.runs):
        return math.inf
    return sum(abs(one.last(at(key)).middle - one.last(at("twin", key)).middle) for key in ("tool", "several"))


def verdict(settings: Sequence[Setting], axes: Sequence[str]) -> str:
    """Name the setting that ends closest to the twin."""
    values, best = min(settings, key=lambda one: round(_distance(one[1]), 2))
    if math.isinf(_distance(best)):
        return "no setting came to the end with all seeds"
    named = ", ".join(f"{axis}={value}" for axis, value in zip(axes, values, strict=True))
    return f"closest to the training without faults: {named} (P(tool) {best.last(at('tool')).middle:.2f})"


def tell(settings: Sequence[Setting], axes: Sequence[str], title: str, out: TextIO) -> None:
    """Print the table and the verdict."""
    shown = ProgressReporter(out, 0, "")
    seeds = len(settings[0][1].runs)
    shown.print(f"{title}: {counted(len(settings), 'setting')} with {counted(seeds, 'seed')} each", "bold")
    shown.table(rows_of(settings), (*axes, *SWEEP_HEAD), texts=len(axes))
    shown.print()
    shown.print(verdict(settings, axes), "bold")
    shown.print(TOY, "dim")


def render(settings: Sequence[Setting], axes: Sequence[str], title: str, about: str) -> str:
    """Return the page."""
    table = PageTable(
        "All settings",
        "Medians over the seeds at the end, and 10 % to 90 %; unseen: lost samples of which the trainer does not know.",
        (*axes, *SWEEP_HEAD),
        rows_of(settings),
        texts=len(axes),
    )
    seeds = len(settings[0][1].runs)
    facts = [("settings", str(len(settings))), ("seeds each", str(seeds))]
    return LearningPage(f"sweep of {title}", verdict(settings, axes), about, facts, [TOY], "", [], [table]).render()


def as_data(settings: Iterable[Setting], axes: Sequence[str], title: str) -> dict[str, Any]:
    """Return the answer for ``--json``."""
    listed = [
        {
            "values": dict(zip(axes, values, strict=True)),
            **one.summary(),
            "not_held": [name for name, (count, _) in one.promises.items() if count],
        }
        for values, one in settings
    ]
    return {"sweep": 1, "scenario": title, "axes": list(axes), "settings": listed}
