"""Formats an error like IPython, colours included."""

from __future__ import annotations

import itertools
import linecache
import traceback
from collections.abc import Callable
from types import FrameType

RED, GREEN, CYAN, BOLD_GREEN, OFF = "\x1b[0;31m", "\x1b[0;32m", "\x1b[0;36m", "\x1b[1;32m", "\x1b[0m"
WIDTH = 75
CONTEXT = 5
"""Lines of source around the failing one."""
CAUSE = "\nThe above exception was the direct cause of the following exception:\n"
CONTEXT_NOTE = "\nDuring handling of the above exception, another exception occurred:\n"

CellNumber = Callable[[str], int | None]
"""Returns the cell of a file name."""


def formatted(exc: BaseException, number: CellNumber) -> list[str]:
    """Format an exception with its causes."""
    if isinstance(exc, SyntaxError) and not _frames(exc, number):
        return [_syntax_error(exc, number)]
    if isinstance(exc, SystemExit):
        only = f"{RED}SystemExit{OFF}{RED}:{OFF} {exc}\n"
        return ["An exception has occurred, use %tb to see the full traceback.\n", only]
    parts = [f"{RED}{'-' * WIDTH}{OFF}"]
    chain: list[tuple[BaseException, str]] = []
    current: BaseException | None = exc
    note = ""
    while current is not None and all(current is not seen for seen, _ in chain):
        chain.append((current, note))
        if current.__cause__ is not None:
            current, note = current.__cause__, CAUSE
        elif current.__suppress_context__:
            current = None
        else:
            current, note = current.__context__, CONTEXT_NOTE
    notes = ["", *(note for _, note in chain[:0:-1])]
    for (each, _), before in zip(reversed(chain), notes, strict=True):
        if before:
            parts.append(before)
        parts += _one(each, number)
    return parts


def _frames(exc: BaseException, number: CellNumber) -> list[tuple[FrameType, int]]:
    """Return the frames from the first one of a cell on, without those of the runner."""
    frames = list(traceback.walk_tb(exc.__traceback__))
    return list(itertools.dropwhile(lambda item: number(item[0].f_code.co_filename) is None, frames))


def _one(exc: BaseException, number: CellNumber) -> list[str]:
    name = type(exc).__name__
    label = "Traceback (most recent call last)"
    parts = [f"{RED}{name}{OFF}{label:>{WIDTH - len(name)}}"]
    for frame, line in _frames(exc, number):
        code = frame.f_code
        if _is_runner(code.co_filename):
            continue
        cell = number(code.co_filename)
        if cell is None:
            where = f"File {GREEN}{code.co_filename}:{line}{OFF}, in {CYAN}{code.co_qualname}{OFF}"
        else:
            inner = "" if code.co_name == "<module>" else f", in {CYAN}{code.co_name}{OFF}"
            where = f"Cell {GREEN}In[{cell}], line {line}{OFF}{inner}"
        parts.append(f"{where}\n{_source(code.co_filename, line)}")
    parts.append(f"{RED}{name}{OFF}: {exc}")
    return parts


def _is_runner(filename: str) -> bool:
    return filename.startswith(__file__.rpartition("/")[0])


def _source(filename: str, line: int) -> str:
    lines = linecache.getlines(filename)
    drawn_lines = []
    for at in range(max(line - CONTEXT // 2, 1), min(line + CONTEXT // 2, len(lines)) + 1):
        text = lines[at - 1].rstrip("\n")
        mark = f"{GREEN}----> {at}{OFF}" if at == line else f"{BOLD_GREEN}{at:>7}{OFF}"
        drawn_lines.append(f"{mark} {text}\n")
    return "".join(drawn_lines)


def _syntax_error(exc: SyntaxError, number: CellNumber) -> str:
    cell = number(exc.filename or "")
    where = f"Cell {GREEN}In[{cell}], line {exc.lineno}" if cell else f"File {GREEN}{exc.filename}:{exc.lineno}"
    text = f"{CYAN}  {where}{CYAN}{OFF}\n"
    if exc.text is not None:
        source = exc.text.rstrip("\n")
        shown = source.lstrip()
        text += f"{RED}    {shown}{OFF}\n"
        if exc.offset is not None:
            column = max(exc.offset - 1 - (len(source) - len(shown)), 0)
            text += f"{OFF}    {' ' * column}^{OFF}\n"
    return f"{text}{RED}{type(exc).__name__}{OFF}{RED}:{OFF} {exc.msg}\n"
