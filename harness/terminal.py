"""Output of long-running commands: a progress bar and colours on a terminal, plain lines in a file
or build log."""

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
_UNLIMITED = 1_000_000
"""The width of a build log without ``COLUMNS``. Sentences there are never wrapped, tables only to
fit ``COLUMNS``."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave the exit code to the command line; rich would exit with 1, which is a broken
        promise."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


class ProgressReporter:
    """Base of the reporters. Subclasses supply the texts; colours and movement appear only on a
    terminal."""

    def __init__(self, out: TextIO, total: int, label: str) -> None:
        self._out, self._total = out, total
        self._bar: Progress | None = None
        if not out.isatty():
            # Also when FORCE_COLOR is set: a file with escape codes helps nobody.
            columns = os.environ.get("COLUMNS", "")
            width = int(columns) if columns.isdecimal() and int(columns) else _UNLIMITED
            self._console = _Console(file=out, force_terminal=False, color_system=None, width=width)
            return
        self._console = _Console(file=out, force_terminal=True, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
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
        """Move the bar to ``done`` with ``note`` beside it; without a terminal, print ``line``
        unless it is empty."""
        if self._bar is not None:
            text = note if isinstance(note, Text) else Text(self._clean(note))
            self._bar.update(self._task, completed=done, note=text.markup)
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
        listed = [[self._clean(cell) for cell in row] for row in rows]
        lines = [*_aligned([list(map(self._clean, head)), *listed] if head else listed, texts)]
        columns = [*zip_longest(*listed, fillvalue="")]
        box = SIMPLE_HEAD if head and self._bar is not None else None
        lines_of_the_box = len(columns) + 1 if box is not None else 0
        is_narrow = (
            max(map(cell_len, lines), default=0) - 1 + lines_of_the_box > self._console.width
        )
        if self._bar is None and not is_narrow:
            self._out.writelines(lines)
            return
        table = Table(
            box=None if is_narrow else box,
            show_header=bool(head),
            pad_edge=False,
            collapse_padding=is_narrow,
            header_style="dim",
        )
        for column, cells in enumerate(columns):
            title = self._clean(head[column]) if head else ""
            wraps = 0 < column < texts or not is_narrow
            width = None if wraps else max(map(cell_len, [*cells, *title.split()]))
            table.add_column(
                Text(title),
                justify="left" if column < texts else "right",
                overflow="fold",
                min_width=width,
                max_width=width,
            )
        for number, (first, *rest) in enumerate(listed):
            table.add_row(Text(first, styles[number] if styles else ""), *map(Text, rest))
        if self._bar is not None:
            self._bar.stop()
        self._console.print(table, crop=False)

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


def _aligned(rows: Sequence[Sequence[str]], texts: int) -> Iterator[str]:
    """Yield the lines of a table that is as wide as it needs to be. For many rows, rich takes 0.1 s
    longer."""
    widths = [max(map(cell_len, column)) for column in zip_longest(*rows, fillvalue="")]
    for row in rows:
        gaps = [" " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=False)]
        cells = [
            cell + gap if number < texts else gap + cell
            for number, (cell, gap) in enumerate(zip(row, gaps, strict=True))
        ]
        yield "  ".join(cells).rstrip() + "\n"


def printable(text: str, keep: str = "") -> str:
    """The text with control characters, line breaks and lone surrogates spelled out, except those
    in ``keep``."""
    return "".join(one if one.isprintable() or one in keep else repr(one)[1:-1] for one in text)
