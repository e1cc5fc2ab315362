"""What ``sfusion train`` says: sentences, tables and plots, the same on a terminal and on its page.

A sweep over trainings says what each setting taught, and which of them comes closest to the twin
without faults.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from sfusion_tools.wording import counted

from ..core.advantages import Handling
from ..lab.scenarios.training import TrainingPart
from ..lab.toy import expected_p, mask_threshold, uses_tool, zero_threshold
from ..reports.html import LearningPage, PageTable
from ..reports.line_chart import ChartLine, ChartPoint, LineChart
from ..terminal import ProgressReporter
from .poison_summary import NAMES
from .trained import Figure, Trained, at, lost_share

SHARES = [number / 20 for number in range(20)]
_UNSEEN = 0.01
"""Share of the lost samples above which it matters that the trainer does not know of them
(chosen)."""
_CURVES = (Handling.ZERO, Handling.MASK, Handling.EXCLUDE, Handling.DROP)
TOY = (
    "This is a toy: a policy of a few behaviours, not a language model. It shows where "
    "lost calls push and "
    "what a setting changes, not how many steps a real training takes or at which share "
    "it collapses."
)


def headline(found: Trained) -> str:
    tool = found.last(at("tool"))
    twin = found.last(at("twin", "tool"))
    if not found.done:
        return "No training ended"
    if tool.middle < twin.middle - 0.1:
        return (
            f"Unlearns the tool: P(tool) {tool.middle:.2f} at the end, "
            f"{twin.middle:.2f} without faults"
        )
    several = found.last(at("several")).middle
    kept = found.last(at("twin", "several")).middle
    if several < kept - 0.2:
        return (
            f"Keeps the tool but unlearns several calls: {several:.2f} at the end, "
            f"{kept:.2f} without faults"
        )
    return f"Learns as without faults: P(tool) {tool.middle:.2f}, the twin {twin.middle:.2f}"


def sentences(found: Trained) -> list[str]:
    """Say what was lost, what the closed form expects, and what the trainer did not know."""
    part = found.part
    said = []
    if not found.done:
        return [TOY]
    how = (
        "lost samples: "
        f"{NAMES[Handling(part.lost)] if part.lost != 'zero' else 'trained on with their score'}"
    )
    said.append(
        f"{found.call_share:.1%} of calls were lost, and {found.lost_share:.1%} of samples "
        "lost their last call "
        f"({how}; loss divided by {'all' if part.divide_by == 'all' else 'the kept'} "
        f"samples; {part.estimator})."
    )
    if found.lost_share and found.unseen_share > _UNSEEN:
        said.append(
            f"The trainer does not know of {found.unseen_share:.0%} of the lost samples, "
            "because the tool does not say "
            "that a call was lost: no handling can help."
        )
    if stops := [run.stopped for run in found.runs if run.stopped is not None]:
        when = f"step {stops[0]}" if len(set(stops)) == 1 else f"steps {min(stops)} to {max(stops)}"
        said.append(f"The guard stopped the training in {when} ({counted(len(stops), 'seed')}).")
    said += _cut_off(found)
    if hit := found.hit_steps:
        where = ", ".join(f"{a + 1} to {b + 1}" if a != b else str(a + 1) for a, b in hit[:6])
        one = len(hit) == 1 and hit[0][0] == hit[0][1]
        said.append(
            f"Calls were lost in step{'' if one else 's'} {where}{', …' if len(hit) > 6 else ''}."
        )
    elif found.call_share and found.unseen_share <= _UNSEEN:
        expected = uses_tool(part, expected_p(part, found.call_share))
        chance = f"If {found.call_share:.1%} of calls are lost independently of each other"
        said.append(f"{chance}, P(tool) is expected to end at {expected:.2f}.{_thresholds(part)}")
    return [*said, TOY]


def _cut_off(found: Trained) -> list[str]:
    """Say which trainings and samples did not come to their end."""
    part = found.part
    said = []
    if short := [run for run in found.done if len(run.steps) < part.steps and run.stopped is None]:
        first = min(len(run.steps) for run in short) + 1
        said.append(
            f"{counted(len(short), 'seed')} broken off before the end, first in step "
            f"{first} of {part.steps}."
        )
    planned = sum(len(run.steps) for run in found.done) * part.prompts * part.group
    if lacking := planned - round(found.total(at("samples"))):
        said.append(
            f"{lacking:,} of {planned:,} samples never ended, and training went on without them."
        )
    return said


def _thresholds(part: TrainingPart) -> str:
    """State the closed form, which is that of two behaviours."""
    if len(part.behaviours) != 2 or {behaviour.calls for behaviour in part.behaviours} != {0, 1}:
        return ""
    head, tool = sorted(part.behaviours, key=lambda behaviour: behaviour.calls)
    if not tool.right > head.right or tool.guess or tool.again:
        return ""
    zero = zero_threshold(head.right, tool.right)
    mask = mask_threshold(head.right, tool.right)
    return f" Scored zero, the tool loses above {zero:.1%}; with a loss mask, above {mask:.1%}."


END_HEAD = ("", "start", "end", "twin")
PROMISE_HEAD = ("", "promise", "seeds", "")


def end_rows(found: Trained) -> list[list[str]]:
    """Each behaviour, the tool, several calls and the score: at the start, at the end, and of
    the twin."""
    part = found.part
    total = sum(behaviour.share for behaviour in part.behaviours)
    start = [behaviour.share / total for behaviour in part.behaviours]
    rows: list[tuple[str, str, tuple[str, ...]]] = [
        (f"P({behaviour.name})", f"{share:.2f}", ("p", behaviour.name))
        for behaviour, share in zip(part.behaviours, start, strict=True)
    ]
    rows.append(("P(tool)", f"{uses_tool(part, start):.2f}", ("tool",)))
    if any(behaviour.calls > 1 for behaviour in part.behaviours):
        rows.append(("P(several calls)", f"{uses_tool(part, start, 2):.2f}", ("several",)))
    rows.append(("score", "", ("score",)))
    return [
        [name, begin, str(found.last(at(*keys))), str(found.last(at("twin", *keys)))]
        for name, begin, keys in rows
    ]


def promise_rows(found: Trained) -> list[list[str]]:
    seeds = len(found.runs)
    return [
        [
            "held" if not count else first.state,
            promise,
            f"{seeds - count} of {seeds}",
            first.sentence,
        ]
        for promise, (count, first) in found.promises.items()
    ]


class TrainReporter(ProgressReporter):
    """Shows how many seeds are done, and then what was learned."""

    def tell(self, found: Trained, title: str) -> None:
        """Print headline, sentences and tables."""
        said = headline(found)
        style = "bold red" if said.startswith(("Unlearns", "Keeps", "No")) else "bold green"
        self.print(f"{title}: {said} ({counted(len(found.runs), 'seed')})", style)
        self.print()
        if found.done:
            self.table(end_rows(found), END_HEAD, texts=1)
            self.print()
        for sentence in sentences(found):
            self.print(sentence)
        if rows := promise_rows(found):
            self.print()
            styles = ["green" if row[0] == "held" else "red" for row in rows]
            self.table(rows, PROMISE_HEAD, styles, texts=4)


def charts(found: Trained) -> list[LineChart]:
    """The plots over the steps, and P(tool) at the end against the share of lost calls."""
    shown = {"P(tool)": "tool"}
    if any(behaviour.calls > 1 for behaviour in found.part.behaviours):
        shown["P(several calls)"] = "several"
    twins = [
        _over_steps(found, title, {"with faults": at(key), "twin": at("twin", key)})
        for title, key in shown.items()
    ]
    each = {behaviour.name: at("p", behaviour.name) for behaviour in found.part.behaviours}
    scores = {
        "score": at("score"),
        "score of the twin": at("twin", "score"),
        "samples lost": lost_share,
    }
    pushes = {NAMES[handling]: at("push", handling.value) for handling in _CURVES[:3]}
    return [
        *twins,
        _over_steps(found, "P of each behaviour", each),
        _over_steps(found, "Score, and share of lost samples", scores),
        _over_steps(found, "Net push on tool use, by handling", pushes, band=False),
        _against_share(found),
    ]


def _over_steps(
    found: Trained, title: str, lines: dict[str, Figure], *, band: bool = True
) -> LineChart:
    drawn = [
        ChartLine(
            name,
            [
                ChartPoint(measured.middle, *((measured.low, measured.high) if band else ()))
                for measured in found.curve(figure)
            ],
        )
        for name, figure in lines.items()
    ]
    labels = [str(step + 1) for step in range(len(drawn[0].points))]
    return LineChart(title, "step", labels, drawn, shaded=found.hit_steps)


def _against_share(found: Trained) -> LineChart:
    part = found.part
    mine = round(found.call_share, 4)
    shares = sorted({*SHARES, mine})
    drawn = [
        ChartLine(
            NAMES[handling],
            [ChartPoint(uses_tool(part, expected_p(part, share, handling))) for share in shares],
        )
        for handling in _CURVES
    ]
    ended = found.last(at("tool"))
    note = f"{mine:.1%} of calls lost: {ended}"
    here = [
        ChartPoint(ended.middle, note=note) if share == mine else ChartPoint(None)
        for share in shares
    ]
    labels = [f"{share:.0%}" for share in shares]
    title = "P(tool) at the end by the share of lost calls"
    return LineChart(
        title=title,
        x_name="calls lost",
        labels=labels,
        lines=[*drawn, ChartLine("this training", here)],
        numbers=shares,
        mark=shares.index(mine),
    )


def render_train(found: Trained, title: str, about: str) -> str:
    """Return the page."""
    part = found.part
    ends = PageTable(
        "At the end", "Medians over the seeds, and 10 % to 90 %.", END_HEAD, end_rows(found)
    )
    ended = [("P(tool)", ("tool",)), ("of the twin", ("twin", "tool"))]
    return LearningPage(
        what=f"train {title}",
        headline=headline(found),
        about=about,
        facts=[
            ("seeds", f"{len(found.runs):,}"),
            ("steps x prompts x group", f"{part.steps} x {part.prompts} x {part.group}"),
            ("calls lost", f"{found.call_share:.1%}"),
            ("samples lost", f"{found.lost_share:.1%}"),
            *((name, f"{found.last(at(*keys)).middle:.2f}") for name, keys in ended if found.done),
        ],
        sentences=sentences(found),
        legend="Lines are medians over the seeds, bands reach from 10 % to 90 %. The twin "
        "has the same seeds and no "
        "faults. Shaded: steps in which calls were lost. Expected: the mean update for "
        "calls lost independently.",
        charts=charts(found) if found.done else [],
        tables=[
            *([ends] if found.done else []),
            PageTable("Promises", "", PROMISE_HEAD, promise_rows(found), texts=4),
        ],
    ).render()


Setting = tuple[Sequence[str], Trained]
"""The values of the axes, and what was learned."""


def rows_of(settings: Sequence[Setting]) -> list[list[str]]:
    """A row for each setting of a sweep: its values and what was learned."""
    rows = []
    for values, trained in settings:
        not_held = sum(count > 0 for count, _ in trained.promises.values())
        row = [
            *values,
            str(trained.last(at("tool"))),
            str(trained.last(at("several"))),
            f"{trained.mean_score:.2f}",
            f"{trained.lost_share:.0%}",
            f"{trained.unseen_share:.0%}",
            f"{not_held} of {len(trained.promises)}",
        ]
        rows.append(row)
    return rows


SWEEP_HEAD = ("P(tool)", "P(several)", "mean score", "lost", "of these unseen", "promises not held")


def _distance(trained: Trained) -> float:
    """How far it ends from the twin; trainings that did not come to the end are farther than
    any."""
    if any(len(run.steps) < trained.part.steps for run in trained.runs):
        return math.inf
    return sum(
        abs(trained.last(at(key)).middle - trained.last(at("twin", key)).middle)
        for key in ("tool", "several")
    )


def verdict(settings: Sequence[Setting], axes: Sequence[str]) -> str:
    """Name the setting that ends closest to the twin."""
    values, best = min(settings, key=lambda setting: round(_distance(setting[1]), 2))
    if math.isinf(_distance(best)):
        return "no setting came to the end with all seeds"
    named = ", ".join(f"{axis}={value}" for axis, value in zip(axes, values, strict=True))
    return (
        f"closest to the training without faults: {named} (P(tool) "
        f"{best.last(at('tool')).middle:.2f})"
    )


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
        sentences=[TOY],
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
            "not_held": [name for name, (count, _) in trained.promises.items() if count],
        }
        for values, trained in settings
    ]
    return {"sweep": 1, "scenario": title, "axes": list(axes), "settings": listed}
