"""The terminal application of the viewer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Collapsible, Footer, Header, Input, Label, OptionList, Static
from textual.widgets.option_list import Option
from textual.worker import get_current_worker

from ...core.dumps.sample import Sample, StepFile
from ...errors import BadFilter
from .detail import field_text, sample_widgets
from .filters import Filter, read_filter
from .sample_list import SampleList

_PROMPTS = {
    "find": "find:",
    "filter": "filter (for example: score<1 outcome:unreachable):",
}
_SAMPLES_PER_UPDATE = 500
"""Samples that are searched before the screen says how far it is (chosen)."""


class ViewerApp(App[None]):
    """Steps and samples on the left, the selected sample on the right."""

    TITLE = "sfusion view"
    CSS_PATH = "viewer.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "sample(1)", "Next"),
        Binding("p", "sample(-1)", "Prev"),
        Binding("N", "step(1)", "Step+", key_display="N"),
        Binding("P", "step(-1)", "Step-", key_display="P"),
        Binding("slash", "ask('find')", "Find", key_display="/"),
        Binding("enter", "next_hit", "Next hit"),
        Binding("f", "ask('filter')", "Filter"),
        Binding("t", "fold", "Calls"),
        Binding("r", "fields", "Fields"),
        Binding("q", "quit", "Quit"),
        Binding("escape", "clear", "Clear"),
    ]

    def __init__(self, steps: Sequence[StepFile], where: Path, sample: int | None = None) -> None:
        """``sample`` is the line of the first step's file to begin at."""
        super().__init__()
        self.steps = steps
        self.sub_title = str(where)
        self.step = steps[0]
        self.filter = Filter()
        self.term = ""
        self.expanded = False
        self._prompt = "find"
        self._busy = ""
        self._wanted: int | None = None if sample is None else sample - 1
        self._shown: tuple[StepFile, int | None] | None = None

    def compose(self) -> ComposeResult:
        """Lay out the screen."""
        yield Header(show_clock=False, icon="")
        with Horizontal():
            with Vertical(id="left"):
                yield OptionList(
                    *(Option(Content(f"step {step.name}")) for step in self.steps), id="steps"
                )
                yield SampleList(id="samples")
            yield VerticalScroll(id="detail")
            with VerticalScroll(id="fields"):
                yield Static(id="field-text")
        with Horizontal(id="ask"):
            yield Label(id="ask-label")
            yield Input(id="ask-input", compact=True)
        yield Static(id="status")
        yield Footer()

    def on_mount(self) -> None:
        """Open the first step."""
        self.query_one("#left").border_title = "samples"
        self.query_one("#fields").border_title = "fields"
        self.query_one("#steps", OptionList).highlighted = 0
        self.samples.focus()
        self._open(self.steps[0])

    @property
    def samples(self) -> SampleList:
        return self.query_one("#samples", SampleList)

    @property
    def sample(self) -> Sample | None:
        number = self.samples.current
        return None if number is None else self.step.sample(number)

    # Steps and rows.

    def _open(self, step: StepFile) -> None:
        self.step = step
        step.index.extend()
        self.samples.cursor = 0
        self._list_rows()
        if not step.index.is_complete:
            self._index(step)

    def _list_rows(self) -> None:
        """List the samples that the filter accepts; applying a filter runs in the background."""
        if self.filter.is_empty:
            self._show_rows(range(len(self.step)))
            return
        self._show_rows([])
        self._scan(self.step, self.filter)

    def _show_rows(self, rows: Sequence[int]) -> None:
        self.samples.show_rows(self.step, rows)
        if self._wanted is not None and self._wanted in rows:
            self.samples.cursor = rows.index(self._wanted)
            self._wanted = None
        if self._shown != (self.step, self.samples.current):
            self.call_next(self._show_sample)
        self._show_status()

    @work(thread=True, exclusive=True, group="index")
    def _index(self, step: StepFile) -> None:
        worker = get_current_worker()
        while not worker.is_cancelled and step.index.extend(blocks=16):
            self.call_from_thread(self._indexed, step)

    def _indexed(self, step: StepFile) -> None:
        if step is not self.step:
            return
        share = step.index.scanned / max(step.index.size, 1)
        self._busy = "" if step.index.is_complete else f"indexing {share:.0%}"
        if self.filter.is_empty:
            self._show_rows(range(len(step)))
        elif step.index.is_complete:
            self._list_rows()
        self._show_status()

    @work(thread=True, exclusive=True, group="scan")
    def _scan(self, step: StepFile, wanted: Filter) -> None:
        worker = get_current_worker()
        rows: list[int] = []
        for number in range(len(step)):
            if worker.is_cancelled:
                return
            if wanted.accepts(step.read(number)):
                rows.append(number)
            if number % _SAMPLES_PER_UPDATE == _SAMPLES_PER_UPDATE - 1:
                self.call_from_thread(self._scanned, step, wanted, list(rows), number + 1)
        self.call_from_thread(self._scanned, step, wanted, rows, len(step))

    def _scanned(self, step: StepFile, wanted: Filter, rows: list[int], seen: int) -> None:
        if step is self.step and wanted == self.filter:
            self._busy = "" if seen >= len(step) else f"filtering {seen / max(len(step), 1):.0%}"
            self._show_rows(rows)

    # One sample.

    @on(SampleList.Selected)
    async def _show_sample(self) -> None:
        detail = self.query_one("#detail", VerticalScroll)
        sample = self.sample
        self._shown = (self.step, self.samples.current)
        async with detail.batch():
            await detail.remove_children()
            if sample is None:
                await detail.mount(Static(Content("no samples to show"), classes="empty"))
            else:
                await detail.mount_all(sample_widgets(sample, self.term, self.expanded))
        detail.scroll_home(animate=False)
        hit = next(iter(detail.query(".hit")), None)
        if hit is not None:
            hit.scroll_visible(animate=False)
        if sample is not None:
            self.query_one("#field-text", Static).update(field_text(sample, self.term))
        self._show_status()

    def _show_status(self) -> None:
        listed = len(self.samples.rows)
        known = len(self.step)
        parts = [f"step {self.step.name}"]
        sample = self.sample
        if sample is not None:
            parts.append(f"sample {sample.number + 1:,} of {known:,}")
            parts.append("no score" if sample.score is None else f"score {sample.score:g}")
            parts += sample.standing
            parts += [f"{name} ×{count}" for name, count in sample.outcomes.items()]
        if not self.filter.is_empty:
            parts.append(f"{listed:,} matching the filter")
        if self.term:
            parts.append(f"find “{self.term}”")
        if self._busy:
            parts.append(self._busy)
        self.query_one("#status", Static).update(Content("  ·  ".join(parts)))

    # Keys.

    def action_sample(self, by: int) -> None:
        """Select another sample."""
        self.samples.cursor += by

    def action_step(self, by: int) -> None:
        """Select another step."""
        steps = self.query_one("#steps", OptionList)
        at = (steps.highlighted or 0) + by
        if 0 <= at < len(self.steps):
            steps.highlighted = at

    @on(OptionList.OptionHighlighted, "#steps")
    def _step_selected(self, event: OptionList.OptionHighlighted) -> None:
        step = self.steps[event.option_index]
        if step is not self.step:
            self._open(step)

    def action_fold(self) -> None:
        """Expand or collapse all tool calls and tool responses."""
        self.expanded = not self.expanded
        for turn in self.query("#detail .assistant, #detail .tool"):
            for call in turn.query(Collapsible):
                call.collapsed = not self.expanded

    def action_fields(self) -> None:
        """Show or hide the fields of the request."""
        fields = self.query_one("#fields")
        fields.display = not fields.display

    def action_ask(self, what: str) -> None:
        """Open the input line."""
        self._prompt = what
        self.query_one("#ask").display = True
        self.query_one("#ask-label", Label).update(Content(f" {_PROMPTS[what]} "))
        line = self.query_one("#ask-input", Input)
        line.value = self.term if what == "find" else ""
        line.focus()

    async def action_clear(self) -> None:
        """Close the input line; if none is open, clear search and filter."""
        ask = self.query_one("#ask")
        if ask.display:
            ask.display = False
            self.samples.focus()
            return
        self._wanted = self.samples.current
        self.term = ""
        self.filter = Filter()
        self._busy = ""
        self._list_rows()
        await self._show_sample()

    @on(Input.Submitted, "#ask-input")
    async def _submitted(self, event: Input.Submitted) -> None:
        self.query_one("#ask").display = False
        self.samples.focus()
        value = event.value.strip()
        if self._prompt == "find":
            self.term = value
            await self._show_sample()
            if value:
                self._find(self.step, value, list(self.samples.rows), self.samples.cursor)
        else:
            self._set_filter(value)

    def _set_filter(self, text: str) -> None:
        try:
            self.filter = read_filter(text)
        except BadFilter as error:
            self.notify(str(error), severity="error", markup=False)
            return
        self._wanted = self.samples.current
        self._list_rows()

    def action_next_hit(self) -> None:
        """Select the next sample that contains the search text."""
        if self.term:
            self._find(self.step, self.term, list(self.samples.rows), self.samples.cursor + 1)

    @work(thread=True, exclusive=True, group="find")
    def _find(self, step: StepFile, term: str, rows: list[int], start: int) -> None:
        worker = get_current_worker()
        wanted = term.lower()
        order = [*range(start, len(rows)), *range(min(start, len(rows)))]
        for done, row in enumerate(order):
            if worker.is_cancelled:
                return
            if wanted in step.read(rows[row]).text.lower():
                self.call_from_thread(self._found, step, rows[row])
                return
            if done % _SAMPLES_PER_UPDATE == _SAMPLES_PER_UPDATE - 1:
                self.call_from_thread(self._searching, done / len(order))
        self.call_from_thread(self._found, step, None)

    def _searching(self, share: float) -> None:
        self._busy = f"searching {share:.0%}"
        self._show_status()

    def _found(self, step: StepFile, number: int | None) -> None:
        self._busy = ""
        if number is None:
            self.notify(
                f"“{self.term}” was not found in the listed samples",
                severity="warning",
                markup=False,
            )
        elif step is self.step and number in self.samples.rows:
            self.samples.cursor = self.samples.rows.index(number)
        self._show_status()
