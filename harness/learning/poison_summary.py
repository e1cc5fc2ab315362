"""What ``sfusion poison`` says: sentences, tables and plots, the same on a terminal and on its
page."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from sfusion_tools.wording import many

from ..core.advantages import SIGNAL, Estimator, Handling
from ..reports.html import LearningPage, PageTable
from ..reports.line_chart import ChartLine, ChartPoint, LineChart
from ..terminal import ReadingReporter
from .dumps import DumpReader
from .evidence import EVENTS, Evidence
from .poison import HitGroup, Poison, PoisonFigures

_ROWS = 8
"""Steps that a table lists (chosen)."""
_MOST = 0.9
"""Share of the lost samples that a stretch of steps must hold to be named (chosen)."""
NAMES = {
    Handling.ZERO: "as trained",
    Handling.MASK: "loss mask only",
    Handling.EXCLUDE: "out of loss and baseline",
    Handling.DROP: "group dropped",
    Handling.FAILED: "retried: all failed",
    Handling.PASSED: "retried: all passed",
}
_CAUSES = {
    "throttled": (
        "the sandbox refused calls",
        "set `rate_limit` to what it admits, for all workers together",
    ),
    "transport_timeout": (
        "answers did not come in time",
        "compare `default_timeout` and `call_deadline` with how long calls take (`sfusion look`)",
    ),
    "unreachable": (
        "connections failed",
        (
            "check the address and restarts of the sandbox; a higher `max_attempts` outlasts a "
            "short outage"
        ),
    ),
    "sandbox_error": (
        "the sandbox itself failed",
        "look at its own log; a higher `max_attempts` outlasts a short outage",
    ),
    "bad_response": (
        "answers were not those of a sandbox",
        "look for a gateway or a proxy in between",
    ),
    "cancelled": (
        "calls were broken off",
        "look at the guard, at over-sampling and at the trainer's own time limits",
    ),
}
"""What an outcome of lost calls means, and what to set or to look at."""


def headline(found: Poison) -> str:
    total = found.total
    if not total.samples:
        return "No sample has a score"
    if not total.lost:
        return (
            f"None of {many(total.samples, 'sample')} with a score is known to have "
            "lost its last call"
        )
    return f"Lost calls carry {total.weight_share:.1%} of the gradient's weight"


def sentences(found: Poison, reader: DumpReader, evidence: Evidence, problems: int) -> list[str]:
    """Say what happened, when, by which cause, what to do, and what the dump does not tell."""
    total = found.total
    said = []
    if total.lost:
        said.append(_what(found))
        if (stretch := _stretch(found)) is not None:
            first, last, share = stretch
            where = f"step {first}" if first == last else f"steps {first} to {last}"
            said.append(f"{share:.0%} of the lost samples are in {where}.")
        said += _causes(total)
        said += _advice(found)
    if total.recovered:
        share = total.weight_recovered / total.weight if total.weight else 0.0
        said.append(
            f"{many(total.recovered, 'sample')} lost a call but got a result later. Such a "
            "score is real, so the "
            f"sample counts as healthy; in all they carry {share:.1%} of the weight."
        )
    if evidence.used:
        listed = ", ".join(f"{source} {count:,}" for source, count in evidence.used.most_common())
        said.append(f"Samples with lost calls were recognised by: {listed}.")
    return [*said, *_limits(found, reader, evidence, problems)]


def _what(found: Poison) -> str:
    total = found.total
    moved = total.moved_by / total.moved if total.moved else 0.0
    return (
        f"{total.lost:,} of {many(total.samples, 'sample')} lost their last call, in "
        f"{total.hit_groups:,} of "
        f"{many(total.groups, 'group')}. They changed the advantage of {total.moved:,} of "
        f"{many(total.siblings, 'healthy sibling')}, on average by {moved:.2f}. "
        f"{many(total.only_lost, 'group')} had a signal only through lost samples."
    )


def _stretch(found: Poison) -> tuple[int, int, float] | None:
    """Return the shortest stretch of steps with most of the lost samples, if it is less than half
    of all steps."""
    counts = [figures.lost for _, figures in found.steps]
    total = sum(counts)
    best = (0, len(counts) - 1)
    start = 0
    inside = 0
    for end, count in enumerate(counts):
        inside += count
        while inside - counts[start] >= _MOST * total:
            inside -= counts[start]
            start += 1
        if inside >= _MOST * total and end - start < best[1] - best[0]:
            best = start, end
    in_order = all(step[0] < other[0] for step, other in pairwise(found.steps))
    if 2 * (best[1] - best[0] + 1) > len(counts) or len(counts) < 4 or not in_order:
        return None
    share = sum(counts[best[0] : best[1] + 1]) / total
    return found.steps[best[0]][0], found.steps[best[1]][0], share


def _causes(total: PoisonFigures) -> list[str]:
    if not total.outcomes:
        return ["How the lost calls ended is not known: give the tool's event log with --events."]
    listed = ", ".join(f"{name} {count:,}" for name, count in total.outcomes.most_common())
    cause, setting = _CAUSES[total.outcomes.most_common(1)[0][0]]
    return [f"The lost calls ended: {listed}. Main cause: {cause}. What to do: {setting}."]


def _advice(found: Poison) -> list[str]:
    total = found.total
    trained, mask, clean = (
        total.push(handling) for handling in (Handling.ZERO, Handling.MASK, Handling.EXCLUDE)
    )
    if total.users == total.samples:
        said = ["Every sample used the tool, so the step pushes neither for nor against it."]
    else:
        said = [
            (
                f"Push on tool use: {trained:+.3f} as trained, {mask:+.3f} with a loss mask, "
                f"{clean:+.3f} without them."
            )
        ]
        low = total.push(Handling.FAILED)
        high = total.push(Handling.PASSED)
        retried = f"the push would lie between {low:+.3f} and {high:+.3f}."
        if (
            found.estimator is Estimator.REINFORCE_PLUS_PLUS_BASELINE
        ):  # no bounds: the scale depends on the mixture
            retried = (
                f"the push would be {low:+.3f} if all had failed, {high:+.3f} if all had passed."
            )
        said.append(f"Had every lost call been retried, {retried}")
    wrong = [
        step
        for step, figures in found.steps
        if figures.lost
        and figures.push(Handling.ZERO) < -SIGNAL
        and figures.push(Handling.EXCLUDE) > -SIGNAL
    ]
    if wrong:
        where = (
            f"step {wrong[0]}"
            if len(wrong) == 1
            else f"{len(wrong)} steps from {wrong[0]} to {wrong[-1]},"
        )
        said.append(
            f"In {where} training pushes away from the tool only because the sandbox failed."
        )
    said.append(
        "Leave lost samples out of the loss and out of the group's mean and std; a loss "
        "mask alone leaves them in the "
        "baseline. Divide the loss by all samples, so that a step with few healthy ones moves less."
    )
    if total.orphans:
        said.append(
            f"{many(total.orphans, 'healthy sample')} lost all siblings. Leave them out "
            "too: verl gives a group of one "
            "the baseline 0, so they would push for whatever they did."
        )
    return said


def _limits(found: Poison, reader: DumpReader, evidence: Evidence, problems: int) -> list[str]:
    total = found.total
    said = []
    if total.unclear:
        said.append(
            f"{many(total.unclear, 'sample')} last read an empty text or one that stands "
            "for anything. A dump "
            "cannot tell a sandbox that lost the output from a program that printed nothing."
        )
    said.append(
        "A sandbox that lies (success without the output) leaves no trace in a dump or "
        "an event log."
    )
    if evidence.logged_calls and not reader.with_id:
        said.append(
            "The event log was not used: the dump has no id of the trajectory "
            "(`request_id`, or --key id=KEY)."
        )
    elif evidence.logged_calls and evidence.logged_calls == evidence.unnamed_calls:
        said.append("The event log was not used: its lines name no trajectory.")
    elif evidence.logged_calls and not evidence.matched:
        said.append(
            "The event log was not used: it has none of these trajectories. Is it of "
            "another training?"
        )
    elif evidence.logged_calls and not evidence.used[EVENTS]:
        said.append(
            f"The event log has calls of {many(evidence.matched, 'sample')}, and none of "
            "them is lost."
        )
    if evidence.shared:
        said.append(
            f"{many(evidence.shared, 'sample')} with the id of another one: the event log "
            "cannot tell them apart."
        )
    if reader.by_input:
        said.append(
            f"{many(reader.by_input, 'sample')} without a group id were grouped by equal "
            "inputs in a step."
        )
    if total.by[Handling.ZERO].alone:
        said.append(
            f"{many(total.by[Handling.ZERO].alone, 'sample')} had no siblings: baseline 0, "
            "as in verl. If the dump "
            "has groups, name their key: --key group=KEY."
        )
    if total.unscored:
        lost = (
            f"; {total.unscored_lost:,} of them lost their last call" if total.unscored_lost else ""
        )
        said.append(f"{many(total.unscored, 'sample')} without a finite score left out{lost}.")
    if found.outside and total.lost:
        low, high = found.bounds
        said.append(
            f"{many(found.outside, 'score')} outside {low:g} to {high:g}: give --scores LOW,HIGH."
        )
    if problems:
        said.append(f"{many(problems, 'line')} could not be read.")
    return [*said, *reader.notes]


def view_command(group: HitGroup) -> str:
    return f"sfusion view {shlex.quote(str(group.file))} --sample {group.first}"


def handling_rows(total: PoisonFigures) -> list[list[str]]:
    """A row for each handling: pushes, groups without signal, weight in the loss."""
    return [
        [
            NAMES[handling],
            f"{total.push(handling):+.3f}",
            f"{total.push(handling, 'several'):+.3f}",
            f"{figures.silent:,}",
            f"{figures.weight / total.weight:.0%}" if total.weight else "–",
        ]
        for handling, figures in total.by.items()
    ]


HANDLING_HEAD = ("handling", "push on tool", "on several calls", "groups without signal", "weight")
STEP_HEAD = ("step", "samples", "lost", "weight of lost", "push as trained", "mask", "excluded")


def step_rows(steps: Sequence[tuple[int, PoisonFigures]]) -> list[list[str]]:
    return [
        [
            str(step),
            f"{figures.samples:,}",
            f"{figures.lost:,}",
            f"{figures.weight_share:.0%}",
            *(
                f"{figures.push(handling):+.3f}"
                for handling in (Handling.ZERO, Handling.MASK, Handling.EXCLUDE)
            ),
        ]
        for step, figures in steps
    ]


def worst_steps(found: Poison, most: int = _ROWS) -> list[tuple[int, PoisonFigures]]:
    """Return the steps in which lost samples carry most weight, in the order of the steps."""
    hit = [place for place, (_, figures) in enumerate(found.steps) if figures.lost]
    hit.sort(key=lambda place: -found.steps[place][1].weight_lost)
    return [found.steps[place] for place in sorted(hit[:most])]


class PoisonReporter(ReadingReporter):
    """Shows how much has been read, and then what was found."""

    def tell(self, found: Poison, said: Sequence[str]) -> None:
        """Print headline, sentences and tables."""
        self.print(
            f"{headline(found)} ({found.estimator.value})",
            "bold red" if found.total.lost else "bold",
        )
        self.print()
        for sentence in said:
            self.print(sentence)
        if not found.total.lost:
            return
        self.print()
        self.table(handling_rows(found.total), HANDLING_HEAD, texts=1)
        self.print()
        shown = worst_steps(found)
        if len(found.steps) > 1:
            self.table(step_rows(shown), STEP_HEAD, texts=1)
            if (rest := sum(figures.lost > 0 for _, figures in found.steps) - len(shown)) > 0:
                self.print(f"and {many(rest, 'more step')} with lost samples", "dim")
            self.print()
        if found.worst:
            self.print(f"the group that was hit most: {view_command(found.worst[0])}")


def render_poison(found: Poison, said: Sequence[str], dumps: Sequence[str]) -> str:
    """Return the page."""
    total = found.total
    steps = [figures for _, figures in found.steps]
    labels = [str(step) for step, _ in found.steps]

    def chart(title: str, lines: dict[str, Any]) -> LineChart:
        drawn = [
            ChartLine(name, [ChartPoint(value(step)) for step in steps])
            for name, value in lines.items()
        ]
        return LineChart(title, "step", labels, drawn)

    def pushes(what: str) -> dict[str, Any]:
        return {
            NAMES[handling]: lambda figures, handling=handling: figures.push(handling, what)
            for handling in list(Handling)[:3]
        }

    charts = [
        chart(
            "Share of lost samples, and of the weight they carry",
            {
                "samples": lambda figures: figures.lost_share,
                "weight": lambda figures: figures.weight_share,
            },
        ),
        chart(
            "Mean score",
            {"score": lambda figures: figures.score / figures.samples if figures.samples else None},
        ),
        chart("Net push on tool use", pushes("tool")),
        chart("Net push on several calls", pushes("several")),
    ]
    return LearningPage(
        what="poison",
        headline=headline(found),
        about=(
            f"What lost calls did to the advantages ({found.estimator.value}) in "
            f"{', '.join(dumps[:8])}"
        )
        + (", …" if len(dumps) > 8 else ""),
        facts=[
            ("samples", f"{total.samples:,}"),
            ("groups", f"{total.groups:,}"),
            ("steps", f"{len(steps):,}"),
            ("lost", f"{total.lost:,}"),
            ("recovered", f"{total.recovered:,}"),
            ("weight of lost", f"{total.weight_share:.1%}"),
        ],
        sentences=said,
        legend=(
            "Net push: mean of advantage x (does it - share that does it); above 0, the "
            "step makes it more likely."
        ),
        charts=charts if len(steps) > 1 else [],
        tables=[
            PageTable(
                "By handling of lost samples",
                "What the same samples would have taught.",
                HANDLING_HEAD,
                handling_rows(total),
            ),
            PageTable(
                "Groups that were hit most",
                "A lost sample is marked with x. The command opens its first lost sample.",
                ("step", "scores", "as trained", "without the lost ones", "open"),
                [_group_row(group) for group in found.worst],
                texts=5,
            ),
            PageTable("Steps that were hit most", "", STEP_HEAD, step_rows(worst_steps(found, 40))),
        ],
    ).render()


def _group_row(group: HitGroup) -> list[str]:
    marked = zip(group.scores, group.lost, strict=True)
    return [
        str(group.step),
        " ".join(f"{score:g}{'x' if lost else ''}" for score, lost in marked),
        " ".join(f"{advantage:+.2f}" for advantage in group.trained),
        " ".join(
            "out" if lost else f"{advantage:+.2f}"
            for advantage, lost in zip(group.excluded, group.lost, strict=True)
        ),
        view_command(group),
    ]
