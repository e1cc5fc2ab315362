"""The list of samples. Only the visible rows are read from the file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from sfusion_tools.outcome import Outcome

from ...core.dumps.sample import Sample, StepFile
from ...terminal import printable

_INFRASTRUCTURE = {outcome.value for outcome in Outcome if outcome.is_infrastructure}
# Columns of a row (chosen: a million samples, and scores such as -0.1234).
_NUMBER = 7
_SCORE = 7


class SampleList(ScrollView, can_focus=True):
    """A list with a row per sample; the one under the cursor is selected."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home", "edge(0)", "First", show=False),
        Binding("end", "edge(-1)", "Last", show=False),
    ]

    COMPONENT_CLASSES: ClassVar[set[str]] = {"sample-list--cursor"}

    cursor: reactive[int] = reactive(0)

    class Selected(Message):
        """Posted when the cursor moves to another row."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._step: StepFile | None = None
        self.rows: Sequence[int] = ()
        """The numbers of the listed samples."""

    def show_rows(self, step: StepFile, rows: Sequence[int]) -> None:
        """List these samples of a step, keeping the cursor's row if possible."""
        self._step = step
        self.rows = rows
        self.cursor = min(self.cursor, max(len(rows) - 1, 0))
        self.virtual_size = Size(self.scrollable_content_region.width, len(rows))
        self.refresh()

    @property
    def current(self) -> int | None:
        """The number of the sample under the cursor."""
        return self.rows[self.cursor] if 0 <= self.cursor < len(self.rows) else None

    def action_move(self, by: int) -> None:
        """Move the cursor by a number of rows."""
        self.cursor += by

    def action_page(self, by: int) -> None:
        """Move the cursor by a screen."""
        self.cursor += by * max(self.size.height - 1, 1)

    def action_edge(self, row: int) -> None:
        """Move the cursor to the first or the last row."""
        self.cursor = row if row >= 0 else len(self.rows) - 1

    def validate_cursor(self, cursor: int) -> int:
        """Keep the cursor within the list."""
        return max(0, min(cursor, len(self.rows) - 1))

    def watch_cursor(self, row: int) -> None:
        """Scroll the row into view and post ``Selected``."""
        self.scroll_to_region(Region(0, row, 1, 1), animate=False, force=True)
        self.refresh()
        self.post_message(self.Selected())

    def on_resize(self) -> None:
        """Make the rows as wide as the widget."""
        self.virtual_size = Size(self.scrollable_content_region.width, len(self.rows))

    def on_click(self, event: object) -> None:
        """Select the row that was clicked."""
        y = getattr(event, "y", 0)
        row = int(y) + self.scroll_offset.y
        if row < len(self.rows):
            self.cursor = row

    def render_line(self, y: int) -> Strip:
        row = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        if self._step is None or row >= len(self.rows):
            return Strip.blank(width, self.rich_style)
        sample = self._step.sample(self.rows[row])
        base = self.rich_style
        if row == self.cursor:
            base += self.get_component_rich_style("sample-list--cursor", partial=True)
        score = "–" if sample.score is None else f"{sample.score:g}"
        rest = max(width - _NUMBER - _SCORE - 3, 0)
        segments = [
            Segment(f"{sample.number + 1:>{_NUMBER - 1}} ", base + Style(dim=True)),
            Segment(f"{sign_of(sample)[0]} ", base + Style(color=sign_of(sample)[1])),
            Segment(f"{score:>{_SCORE - 2}}  ", base + Style(color=_score_colour(sample.score))),
            Segment(set_cell_size(printable(sample.preview), rest), base),
        ]
        return Strip(segments).adjust_cell_length(width, base)


def sign_of(sample: Sample) -> tuple[str, str]:
    """The sign and colour that summarise how the calls of a sample ended."""
    outcomes = set(sample.outcomes)
    if (
        sample.problem is not None
        or sample.fields.get("state") == "failed"
        or outcomes & _INFRASTRUCTURE
    ):
        return "✗", "red"
    if outcomes - {Outcome.OK.value} or sample.fields.get("refused"):
        return "▲", "yellow"
    return ("●", "green") if outcomes else ("·", "bright_black")


def _score_colour(score: float | None) -> str:
    if score is None:
        return "bright_black"
    if score > 0:
        return "green"
    return "red" if score < 0 else "yellow"
