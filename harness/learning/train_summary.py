"""What ``sfusion train`` says: sentences, tables and plots, the same on a terminal and on its
page."""

from __future__ import annotations

from sfusion_tools.advantages import Handling
from sfusion_tools.wording import counted

from ..lab.scenarios.training import TrainingPart
from ..lab.toy import (
    Threshold,
    ToyPolicy,
    expected,
    mask_threshold,
    threshold,
    uses_tool,
    zero_threshold,
)
from ..reports.html import LearningPage, PageTable
from ..reports.line_chart import ChartLine, ChartPoint, LineChart
from ..terminal import ProgressReporter
from .handling_names import NAMES
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


_WORSE = 0.05
"""A healthy score this much below the twin's is told as harm (chosen: 5 points of accuracy)."""
_LESS_TOOL = 0.1
"""And so is a P(tool) this much below (chosen; as much as `tool_use_kept` allows)."""
_LESS_SEVERAL = 0.2
"""And several calls this much less likely (chosen; as much as `several_calls_kept` allows)."""


def headline(found: Trained) -> str:
    """Say how good the final model is on a healthy sandbox, then which way it takes."""
    if not found.done:
        return "No training ended"
    healthy = found.last(at("healthy")).middle
    twin = found.last(at("twin", "healthy")).middle
    scores = f"score on a healthy sandbox {healthy:.2f}, {twin:.2f} without faults"
    if healthy < twin - _WORSE:
        return f"Does worse: {scores}; {_tool_use(found)}"
    tool = found.last(at("tool")).middle
    if tool < found.last(at("twin", "tool")).middle - _LESS_TOOL:
        start = uses_tool(found.part, ToyPolicy(found.part).start)
        loses = "Loses its tool" if tool < start - _LESS_TOOL else "Does not learn to use its tool"
        return f"{loses}: {scores}; {_tool_use(found)}"
    several = found.last(at("several")).middle
    kept = found.last(at("twin", "several")).middle
    if several < kept - _LESS_SEVERAL:
        return (
            f"Stops checking: {scores}; P(several calls) {several:.2f}, {kept:.2f} without faults"
        )
    return f"Learns as without faults: {scores}; {_tool_use(found)}"


def _tool_use(found: Trained) -> str:
    tool = found.last(at("tool")).middle
    twin = found.last(at("twin", "tool")).middle
    start = uses_tool(found.part, ToyPolicy(found.part).start)
    return f"P(tool) from {start:.2f} to {tool:.2f}, {twin:.2f} without faults"


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
        ending = expected(part, found.call_share)[-1].tool
        chance = f"If {found.call_share:.1%} of calls are lost independently of each other"
        said.append(f"{chance}, P(tool) is expected to end at {ending:.2f}.")
        said += thresholds(part)
    return [*said, found.played, TOY]


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


def thresholds(part: TrainingPart) -> list[str]:
    """Say from which share of lost calls on the tool is lost, and what that depends on."""
    ranges = [
        f"{_HOW[handling]} {_range(threshold(part, handling))}"
        for handling in (Handling.ZERO, Handling.MASK)
    ]
    said = (
        "Calls lost independently cost this policy its tool (P(tool) ends below half of what it is "
        f"without faults) {'; '.join(ranges)}. The ranges are over skills that stand still or "
        "learn twice as fast, at half and twice the learning rate; with another model, other "
        "questions or more steps they are others."
    )
    return [said, *_closed_form(part)]


_HOW = {Handling.ZERO: "scored zero", Handling.MASK: "with a loss mask only"}


def _range(found: Threshold) -> str:
    if found.lowest is None:
        return "at no share"
    highest = "never" if found.highest is None else f"{found.highest:.0%}"
    as_set = "at no share as set" if found.as_set is None else f"from {found.as_set:.0%} on"
    return f"{as_set} ({found.lowest:.0%} to {highest})"


def _closed_form(part: TrainingPart) -> list[str]:
    """State the closed form, which is that of two behaviours, with what it assumes."""
    if len(part.behaviours) != 2 or {behaviour.calls for behaviour in part.behaviours} != {0, 1}:
        return []
    head, tool = sorted(part.behaviours, key=lambda behaviour: behaviour.calls)
    if not tool.right > head.right or tool.guess or tool.again:
        return []
    zero = zero_threshold(head.right, tool.right)
    mask = mask_threshold(head.right, tool.right)
    return [
        f"The formula 1 - head / tool says {zero:.0%} scored zero, {mask:.0%} with a loss mask "
        "only. It assumes that skills stand still: a model that gets better without its tool "
        "turns earlier."
    ]


END_HEAD = ("", "start", "end", "twin")
PROMISE_HEAD = ("", "promise", "over the seeds", "")


def end_rows(found: Trained) -> list[list[str]]:
    """Each behaviour, the tool, several calls and the score: at the start, at the end, and of
    the twin."""
    part = found.part
    total = sum(behaviour.share for behaviour in part.behaviours)
    start = [behaviour.share / total for behaviour in part.behaviours]
    rows: list[tuple[str, str, tuple[str, ...]]] = [
        ("score on a healthy sandbox", f"{ToyPolicy(part).healthy:.2f}", ("healthy",))
    ]
    for behaviour, share in zip(part.behaviours, start, strict=True):
        rows.append((f"P({behaviour.name})", f"{share:.2f}", ("p", behaviour.name)))
    rows.append(("P(tool)", f"{uses_tool(part, start):.2f}", ("tool",)))
    if any(behaviour.calls > 1 for behaviour in part.behaviours):
        rows.append(("P(several calls)", f"{uses_tool(part, start, 2):.2f}", ("several",)))
    for behaviour in part.behaviours:
        title = f"right with {behaviour.name}"
        rows.append((title, f"{behaviour.right:.2f}", ("right", behaviour.name)))
    rows.append(("score in training", "", ("score",)))
    return [
        [name, begin, str(found.last(at(*keys))), str(found.last(at("twin", *keys)))]
        for name, begin, keys in rows
    ]


def promise_rows(found: Trained) -> list[list[str]]:
    """How each promise went: its worst state, with how many seeds it was held, and a sentence."""
    return [
        [tally.state.replace("_", " "), promise, tally.told, tally.shown.sentence]
        for promise, tally in found.promises.items()
    ]


class TrainReporter(ProgressReporter):
    """Shows how many seeds are done, and then what was learned."""

    def tell(self, found: Trained, title: str) -> None:
        """Print headline, sentences and tables."""
        said = headline(found)
        style = "bold green" if said.startswith("Learns as") else "bold red"
        self.print(f"{title}: {said} ({counted(len(found.runs), 'seed')})", style)
        self.print()
        if found.done:
            self.table(end_rows(found), END_HEAD, texts=1)
            self.print()
        for sentence in sentences(found):
            self.print(sentence)
        if rows := promise_rows(found):
            self.print()
            styles = ["red" if row[0] in ("broken", "unknown") else "green" for row in rows]
            self.table(rows, PROMISE_HEAD, styles, texts=4)


def charts(found: Trained) -> list[LineChart]:
    """The plots over the steps, and P(tool) at the end against the share of lost calls."""
    shown = {"Score on a healthy sandbox": "healthy", "P(tool)": "tool"}
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
        _over_steps(found, "Skill of each behaviour", _skills(found)),
        _over_steps(found, "Score, and share of lost samples", scores),
        _over_steps(found, "Net push on tool use, by handling", pushes, band=False),
        _against_share(found),
    ]


def _skills(found: Trained) -> dict[str, Figure]:
    """The chance of each behaviour to be right."""
    return {behaviour.name: at("right", behaviour.name) for behaviour in found.part.behaviours}


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
            [ChartPoint(expected(part, share, handling)[-1].tool) for share in shares],
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
    ended = [
        ("healthy score", ("healthy",)),
        ("of the twin", ("twin", "healthy")),
        ("P(tool)", ("tool",)),
        ("of the twin", ("twin", "tool")),
    ]
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
