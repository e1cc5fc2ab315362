"""Output of long-running commands.

On a terminal it has a progress bar and colours; in a file or a build log it is plain lines.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Self, TextIO

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

_MB = 1_000_000
_BAR = 30
"""Columns of a progress bar (chosen: the texts beside it fit into 80)."""
_UNLIMITED = 1_000_000
"""The width of a build log without ``COLUMNS`` (chosen: wider than any line).

Sentences there are never wrapped, tables only to fit ``COLUMNS``.
"""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave the exit code to the command line.

        rich would exit with 1, which is a broken promise.
        """
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


class ProgressReporter:
    """Base of the reporters.

    Subclasses supply the texts; colours and movement appear only on a terminal.
    """

    def __init__(self, out: TextIO, total: int, label: str) -> None:
        self._out = out
        self._total = total
        self._bar: Progress | None = None
        if not out.isatty():
            # Also when FORCE_COLOR is set: a file with escape codes helps nobody.
            columns = os.environ.get("COLUMNS", "")
            width = int(columns) if columns.isdecimal() else 0
            width = width or _UNLIMITED
            self._console = _Console(file=out, force_terminal=False, color_system=None, width=width)
            return
        self._console = _Console(file=out, force_terminal=True, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=_BAR),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task(Text(label).markup, total=total, note="")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def progress(self, done: int, note: Text | str = "", *, line: str = "") -> None:
        """Move the bar to ``done`` with ``note`` beside it.

        A last batch may take longer than was asked for: then the bar is full, not beyond its end.
        Without a terminal, print ``line`` unless it is empty.
        """
        if self._bar is not None:
            text = note if isinstance(note, Text) else Text(self._clean(note))
            self._bar.update(self._task, completed=min(done, self._total), note=text.markup)
        elif line:
            self.print(line)

    def print(self, text: str = "", style: str = "") -> None:
        """Print one line, above the bar while there is one."""
        self._console.print(Text(self._clean(text), style), soft_wrap=True)

    def table(
        self,
        rows: Iterable[Sequence[str]],
        head: Sequence[str] = (),
        styles: Sequence[str] = (),
        *,
        texts: int = 2,
    ) -> None:
        """Print rows in aligned columns, with ``styles`` for the first cell of each row.

        The first ``texts`` columns are text, which wraps where a terminal is too narrow, except in
        the very first; those after them are aligned to the right and never cut, though their
        headings may wrap.
        """
        titles = self._clean_row(head)
        listed = [self._clean_row(row) for row in rows]
        columns = list(zip_longest(*listed, fillvalue=""))
        lines = list(_aligned([titles, *listed] if titles else listed, texts))
        has_box = bool(titles) and self._bar is not None
        width = max(map(cell_len, lines), default=0) - 1
        if has_box:
            width += len(columns) + 1  # the lines of the box
        is_narrow = width > self._console.width
        if self._bar is None and not is_narrow:
            self._out.writelines(lines)
            return

        table = Table(
            box=SIMPLE_HEAD if has_box and not is_narrow else None,
            show_header=bool(titles),
            pad_edge=False,
            collapse_padding=is_narrow,
            header_style="dim",
        )
        for number, cells in enumerate(columns):
            _add_column(
                table,
                cells,
                title=titles[number] if titles else "",
                is_text=number < texts,
                wraps=0 < number < texts or not is_narrow,
            )
        for number, (first, *rest) in enumerate(listed):
            style = styles[number] if styles else ""
            table.add_row(Text(first, style), *map(Text, rest))
        if self._bar is not None:
            self._bar.stop()
        self._console.print(table, crop=False)

    def _clean_row(self, cells: Sequence[str]) -> list[str]:
        return [self._clean(cell) for cell in cells]

    def _clean(self, text: str) -> str:
        """The text as the stream can encode it, unable to control a terminal."""
        encoding = self._out.encoding or "utf-8"
        return printable(text).encode(encoding, "replace").decode(encoding)


class ReadingReporter(ProgressReporter):
    """Shows how much of some files has been read."""

    def __init__(self, out: TextIO, total_bytes: int) -> None:
        super().__init__(out, max(1, total_bytes // _MB), "reading, in MB")

    def read(self, so_far: int) -> None:
        """Show how many bytes have been read."""
        self.progress(so_far // _MB)


def _add_column(
    table: Table, cells: Sequence[str], *, title: str, is_text: bool, wraps: bool
) -> None:
    """Add a column, which is as wide as its longest cell or word of its title unless it wraps."""
    width = None
    if not wraps:
        width = max(map(cell_len, [*cells, *title.split()]))
    table.add_column(
        Text(title),
        justify="left" if is_text else "right",
        overflow="fold",
        min_width=width,
        max_width=width,
    )


def _aligned(rows: Sequence[Sequence[str]], texts: int) -> Iterator[str]:
    """Yield the lines of a table that is as wide as it needs to be.

    For many rows, rich takes 0.1 s longer.
    """
    widths = [max(map(cell_len, column)) for column in zip_longest(*rows, fillvalue="")]
    for row in rows:
        cells = []
        for number, cell in enumerate(row):
            gap = " " * (widths[number] - cell_len(cell))
            cells.append(cell + gap if number < texts else gap + cell)
        yield "  ".join(cells).rstrip() + "\n"


def printable(text: str, keep: str = "") -> str:
    """The text with control characters, line breaks and lone surrogates spelled out.

    Those in ``keep`` stay.
    """
    shown = []
    for sign in text:
        if not sign.isprintable() and sign not in keep:
            sign = repr(sign)[1:-1]
        shown.append(sign)
    return "".join(shown)
