"""What ``sfusion poison`` shows: tables and plots, the same on a terminal and on its page."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from sfusion_tools.advantages import Handling
from sfusion_tools.wording import many

from ..reports.html import LearningPage, PageTable
from ..reports.line_chart import ChartLine, ChartPoint, LineChart
from ..terminal import ReadingReporter
from .answer import PoisonAnswer
from .drop import DropVerdict
from .figures import PoisonFigures
from .gate import exit_code
from .handling_names import NAMES
from .poison import HitGroup, Poison
from .poison_sentences import first_sentences, headline, notes, text_line
from .scores import Segment

_ROWS = 8
"""Steps that a table on a terminal lists (chosen)."""
_PAGE_ROWS = 40
"""Steps that a table on a page lists (chosen)."""
_PROGRAMS = 5
"""Programs that are listed (chosen)."""
HANDLING_HEAD = ("handling", "push on tool", "on several calls", "groups without signal", "weight")
_TRAINED_ON = "trained on their score"
STEP_HEAD = ("step", "samples", "lost", "score", "of the healthy", "weight of lost", "push")


def view_command(group: HitGroup) -> str:
    return f"sfusion view {shlex.quote(str(group.file))} --sample {group.first}"


def handling_rows(found: Poison) -> list[list[str]]:
    """A row for each handling: pushes, groups without signal, weight in the loss."""
    total = found.total
    whole = total.weight.by(found.weighting)
    rows = []
    for handling, figures in total.by.items():
        name = NAMES[handling]
        if found.trained is not Handling.ZERO:  # else it is what "as trained" means
            name = _TRAINED_ON if handling is Handling.ZERO else name
            name += " (as trained)" if handling is found.trained else ""
        share = figures.weight.by(found.weighting) / whole if whole else None
        rows.append(
            [
                name,
                f"{total.push(handling):+.3f}",
                f"{total.push(handling, 'several'):+.3f}",
                f"{figures.silent:,}",
                "–" if share is None else f"{share:.0%}",
            ]
        )
    return rows


def step_rows(found: Poison, most: int) -> list[list[str]]:
    """A row for each of the steps with most lost samples, in the order of the steps."""
    hit = [place for place, (_, figures) in enumerate(found.steps) if figures.lost]
    hit.sort(key=lambda place: -found.steps[place][1].lost_share)
    return [_step_row(found, place) for place in sorted(hit[:most])]


def _step_row(found: Poison, place: int) -> list[str]:
    step, figures = found.steps[place]
    scores = Segment.of([found.scores[place]])
    return [
        str(step),
        f"{figures.samples:,}",
        f"{figures.lost:,}",
        f"{scores.score:.2f}",
        "–" if scores.healthy is None else f"{scores.healthy:.2f}",
        f"{figures.weight_share(found.weighting):.0%}",
        f"{figures.push(found.trained):+.3f}",
    ]


class PoisonReporter(ReadingReporter):
    """Shows how much has been read, and then what was found."""

    def tell(self, answer: PoisonAnswer) -> None:
        """Print the answer, what it rests on, and tables."""
        found = answer.found
        self.print(f"{headline(answer)}.", "bold red" if found.total.lost else "bold")
        self.print()
        for sentence in first_sentences(answer):
            self.print(sentence)
        for text in answer.vague:
            self.print(f"Vague text: {text_line(text)}", "yellow")
        for text in answer.texts:
            self.print(f"Unknown text: {text_line(text)}", "yellow")
        for program in answer.programs[:_PROGRAMS]:
            self.print(
                f"Perhaps the model causes it: all {program.tried} attempts of a program were lost "
                f"while others of its steps succeeded: {program.text[:80]!r}",
                "yellow",
            )
        self.print()
        if found.total.lost:
            self._tables(found)
        for note in notes(answer):
            self.print(note, "dim")

    def _tables(self, found: Poison) -> None:
        rows = step_rows(found, _ROWS)
        if len(found.steps) > 1:
            self.table(rows, STEP_HEAD, texts=1)
            rest = sum(figures.lost > 0 for _, figures in found.steps) - len(rows)
            if rest > 0:
                self.print(f"and {many(rest, 'more step')} with lost samples", "dim")
            self.print()
        self.table(handling_rows(found), HANDLING_HEAD, texts=1)
        self.print()
        if found.worst:
            self.print(f"the group that was hit most: {view_command(found.worst[0])}")
            self.print()

    def tell_gate(self, answer: PoisonAnswer) -> int:
        """Print why the gate does not pass; return the exit code."""
        code = exit_code(answer.findings)
        verdict = {0: "passed", 1: "failed", 2: "cannot judge"}[code]
        self.print(f"Gate: {verdict}", "green" if code == 0 else "red")
        last = ""
        for finding in answer.findings:
            kind = "fails" if finding.breaks else "cannot judge"
            quantity = finding.name.partition(".")[0]
            # The same quantity in a window and in a step is one reason more, not three.
            short = finding.text.partition("%")[0] + f"% (limit {finding.name} {finding.limit})"
            indent = "    and " if quantity == last else f"  {kind}: "
            self.print(indent + (short if quantity == last else finding.text), "red")
            last = quantity if finding.limit is not None else ""
        return code


def render_poison(answer: PoisonAnswer, dumps: Sequence[str]) -> str:
    """Return the page."""
    found = answer.found
    total = found.total
    named = ", ".join(dumps[:8]) + (", …" if len(dumps) > 8 else "")
    weight = total.weight_share(found.weighting)
    return LearningPage(
        what="poison",
        headline=headline(answer),
        about=f"What lost calls did to the training in {named}",
        facts=[
            ("samples", f"{total.samples:,}"),
            ("groups", f"{total.groups:,}"),
            ("steps", f"{len(found.steps):,}"),
            ("lost", f"{total.lost:,}"),
            ("unclear", f"{total.unclear:,}"),
            ("weight of lost", f"{weight:.1%}"),
        ],
        sentences=first_sentences(answer),
        legend=(
            "Healthy: as if lost samples had scored like the healthy ones of their step. Net push: "
            "mean of advantage x (does it - share that does it); above 0, the step makes it more "
            "likely."
        ),
        charts=_charts(answer) if len(found.steps) > 1 else [],
        tables=_tables(answer),
        notes=notes(answer),
    ).render()


def _charts(answer: PoisonAnswer) -> list[LineChart]:
    found = answer.found
    labels = [str(step) for step, _ in found.steps]
    steps = [figures for _, figures in found.steps]
    segments = [Segment.of([scores]) for scores in found.scores]

    def line(name: str, value: Callable[[PoisonFigures], float | None]) -> ChartLine:
        return ChartLine(name, [ChartPoint(value(figures)) for figures in steps])

    healthy = [ChartPoint(part.healthy) for part in segments]
    scores = [line("as trained", lambda figures: figures.mean_score)]
    shown = [
        line("samples", lambda figures: figures.lost_share),
        line("weight", lambda figures: figures.weight_share(found.weighting)),
    ]
    shaded = _shaded(answer)
    charts = [
        LineChart(
            "Mean score",
            "step",
            labels,
            [ChartLine("healthy samples", healthy), *scores],
            shaded=shaded,
        ),
        LineChart("Share of lost samples, and of the weight they carry", "step", labels, shown),
    ]
    if found.total.users and found.total.users < found.total.samples:
        pushes = [
            line("out of loss and baseline", lambda figures: figures.push(Handling.EXCLUDE)),
            line("as trained", lambda figures: figures.push(found.trained)),
        ]
        charts.append(LineChart("Net push on tool use", "step", labels, pushes))
    if found.total.calls > found.total.users:
        pushes = [
            line(
                "out of loss and baseline",
                lambda figures: figures.push(Handling.EXCLUDE, "several"),
            ),
            line("as trained", lambda figures: figures.push(found.trained, "several")),
        ]
        charts.append(LineChart("Net push on several calls", "step", labels, pushes))
    return charts


def _shaded(answer: PoisonAnswer) -> list[tuple[int, int]]:
    """The steps after the drop, which the headline is about."""
    drop = answer.drop
    if drop is None or drop.verdict is DropVerdict.NO_DROP:
        return []
    inside = [
        place
        for place, (step, _) in enumerate(answer.found.steps)
        if drop.after.first <= step <= drop.after.last
    ]
    return [(inside[0], inside[-1])]


def _tables(answer: PoisonAnswer) -> list[PageTable]:
    found = answer.found
    texts = []
    for text in (*answer.vague, *answer.texts):
        first, last = min(text.steps), max(text.steps)
        texts.append([text.example, f"{text.count:,}", f"{first} to {last}", text.pattern])
    programs = []
    for program in answer.programs[:_PROGRAMS]:
        where = f"{program.first_step} to {program.last_step}"
        programs.append([program.text, f"{program.tried:,}", where])
    reasons = [
        ["fails" if finding.breaks else "cannot judge", finding.text] for finding in answer.findings
    ]
    return [
        PageTable(
            "Why the gate does not pass",
            "The gate sets the exit code if --fail-above or --limit is given.",
            ("gate", "reason"),
            reasons,
            texts=2,
        ),
        PageTable(
            "Texts that do not tell",
            "For --lost-pattern if these calls were lost, for --output-pattern if not.",
            ("text", "samples", "steps", "pattern"),
            texts,
            texts=4,
        ),
        PageTable(
            "Programs that lose every attempt",
            "Others of their steps succeeded. If the program causes the loss, score it.",
            ("program", "attempts", "steps"),
            programs,
            texts=3,
        ),
        PageTable("Steps with most lost samples", "", STEP_HEAD, step_rows(found, _PAGE_ROWS)),
        PageTable(
            "By handling of lost samples",
            "What the same samples would have taught.",
            HANDLING_HEAD,
            handling_rows(found) if found.total.lost else [],
        ),
        PageTable(
            "Groups that were hit most",
            "A lost sample is marked with x. The command opens its first lost sample.",
            ("step", "scores", "as trained", "without the lost ones", "open"),
            [_group_row(group) for group in found.worst],
            texts=5,
        ),
    ]


def _group_row(group: HitGroup) -> list[str]:
    scores = []
    clean = []
    for place, lost in enumerate(group.lost):
        scores.append(f"{group.scores[place]:g}{'x' if lost else ''}")
        clean.append("out" if lost else f"{group.excluded[place]:+.2f}")
    return [
        str(group.step),
        " ".join(scores),
        " ".join(f"{advantage:+.2f}" for advantage in group.trained),
        " ".join(clean),
        view_command(group),
    ]
