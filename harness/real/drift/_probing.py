"""Shared by ``record`` and ``drift``: choosing probes and showing progress."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfusion_tools.wording import counted

if TYPE_CHECKING:
    from sfusion.harness.real.probes import Probe

OwnProbes = Annotated[
    list[Path] | None,
    typer.Option("--probes", help="File or folder of your own probes; the same id replaces a bundled one."),
]
Only = Annotated[list[str] | None, typer.Option("-k", help="Only probes with this in their id.")]
Quick = Annotated[bool, typer.Option("--quick", help="Skip the slow probes.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait for the answer to a probe.")]
ListProbes = Annotated[bool, typer.Option("--list", help="Show the probes and send nothing.")]

_LINES = 5
"""Lines of progress when stderr is not a terminal."""


def read_suite(paths: Sequence[Path], only: Sequence[str], quick: bool) -> list[Probe]:
    """The bundled probes and the user's, filtered; raises BadProbes."""
    from sfusion.harness.real.probes import chosen, read_probes, suite_with

    return chosen(suite_with(read_probes(paths)), only=only, quick=quick)


def list_probes(probes: Sequence[Probe]) -> None:
    width = max(len(probe.id) for probe in probes)
    for probe in probes:
        slow = " (slow)" if probe.slow else ""
        typer.echo(f"{probe.id:<{width}}  {probe.about}{slow}")
    typer.echo(counted(len(probes), "probe"))


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[Probe], None]]:
    """Show progress on stderr: a bar on a terminal, a few lines otherwise. Yields what to call after each probe."""
    from sfusion.harness.terminal import ProgressReporter

    done = 0
    with ProgressReporter(sys.stderr, total, label) as terminal:

        def advance(_: Probe) -> None:
            nonlocal done
            done += 1
            is_due = done == total or done * _LINES // total != (done - 1) * _LINES // total
            terminal.progress(done, line=f"{label}: {done} of {total} probes" if is_due else "")

        yield advance
