"""``sfusion learn``: diagnose production logs and write a scenario that reproduces what went wrong.

Reads what `sfusion look` reads: event logs of the tool, journals, access logs. Finds how calls
arrive, how long programs run, where the server has a limit or gets slower under load, what fails
how often and when, and outages. Comments in the YAML say where each number comes from; play it with
`sfusion run`, change one thing, and see what that would have done.

Then the scenario is run in virtual time and compared with the log: outcomes within 2 points, p50
and p95 within 15%, rate and attempts within 25%, failures at the same time, the same main cause.

Exit code 0 if it behaves like the log, 1 if it does not or if there are too few calls to judge (the
file is still written), 2 if the input is wrong.

Example: sfusion learn /shared/logs --to friday.yaml && sfusion run friday.yaml --out runs
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from sfusion_tools.record import Call
from sfusion_tools.wording import counted

from ...atomic_files import write_file
from ...commandline.declaring import command, option
from ...commandline.options import Force, Logs
from ...core.logs.reading import LogReader, UnreadableLines, with_stdin
from ...errors import LogError
from ...reports.files import check_new_file
from ...terminal import ProgressReporter
from .attempts import joined
from .check import Checked, check
from .draft import scenario_text
from .learned import FEWEST, Learned, learn
from .survey import Survey, Window, sample

_EVERY = 10_000
"""Calls between two lines of progress (chosen)."""
_NAMED = (
    "quota",
    "queue",
    "contention",
    "spawn",
    "degradation",
    "slow_spell",
    "slowdown",
    "crash",
    "wedge",
)
"""Causes whose sentence does not contain their name."""
HEAD = ("figure", "log", "scenario", "difference", "bound", "")


@command
def learn_from_logs(
    logs: Logs,
    out: Annotated[
        Path | None, option("Where to write the scenario (default, and `-`: stdout).", names="--to")
    ] = None,
    force: Force = False,
    most: Annotated[
        int,
        option(
            "Learn from the stretch of about this many calls with most trouble.",
            names="--calls",
            min=1,
            max=200000,
        ),
    ] = 5000,
    wants_check: Annotated[
        bool,
        option(
            "Run the scenario in virtual time, learn again and compare.", names="--check/--no-check"
        ),
    ] = True,
) -> int:
    if out == Path("-"):
        out = None
    if out is not None:
        check_new_file("--to", out, force=force)
    # The scenario itself may go to stdout.
    stream = sys.stdout if out is not None else sys.stderr
    unreadable = UnreadableLines()
    with with_stdin(logs) as files:
        reader = LogReader(files, unreadable)
        reader.on_broken_off = reader.left_out.append
        with ProgressReporter(stream, max(1, reader.total_bytes), "reading") as shown:
            calls, window, all_calls = _read(
                logs=files, reader=reader, most=most, shown=shown, unreadable=unreadable
            )
    learned = learn(calls, all_calls)
    name, origin = _name(out, learned), _origin(logs, window, calls)
    text = scenario_text(learned, name, origin)
    with ProgressReporter(stream, 1, "comparing with the log") as shown:
        _tell(shown, learned, window)
        checked = check(learned, text) if wants_check else None
        if checked is not None and checked.doubt:
            text = scenario_text(learned.doubted(checked.doubt), name, origin)
        if out is not None:
            write_file(out, text)
            shown.print()
            shown.print(f"{out}: run it with `sfusion run {shlex.quote(str(out))}`")
        else:
            typer.echo(text, nl=False)
        if checked is None:
            return 0
        _tell_check(shown, learned, checked)
    return 0 if checked.agrees else 1


def _read(
    logs: Sequence[Path],
    reader: LogReader,
    most: int,
    shown: ProgressReporter,
    unreadable: UnreadableLines,
) -> tuple[list[Call], Window, list[Call]]:
    """Return the calls to learn from, which stretch of the log they are, and all calls if there
    are more of them, but no more than ``most``.

    A longer log is read twice: first to see which stretch, then that stretch.
    """
    survey = Survey()
    calls: list[Call] = []
    for record in _watched(reader, shown, "reading"):
        survey.add(record)
        if survey.calls <= most:
            calls.append(record)
        elif calls:
            calls = []
    window = survey.window(most)
    if window is None:
        raise LogError(
            "; ".join([*unreadable.first, *reader.left_out])
            or f"{', '.join(map(str, logs))}: no call in there"
        )
    for sentence in reader.left_out:
        shown.print(sentence, "yellow")
    if unreadable.count:
        shown.print(
            f"{counted(unreadable.count, 'line')} cannot be read; the first: {unreadable.first[0]}",
            "yellow",
        )
    if calls and window.is_whole:
        return joined(calls), window, []
    if calls:
        return sample(calls, window, most), window, joined(calls)
    again = _watched(LogReader(logs, UnreadableLines()), shown, "reading again")
    return sample(again, window, most), window, []


def _watched(reader: LogReader, shown: ProgressReporter, label: str) -> Iterator[Call]:
    for number, record in enumerate(reader, 1):
        if number % _EVERY == 0:
            note = f"{label}: {number:,} calls"
            shown.progress(reader.bytes, note, line=note if number % (20 * _EVERY) == 0 else "")
        yield record


def _name(out: Path | None, learned: Learned) -> str:
    default = f"learned-{learned.headline.replace('_', '-')}" if learned.causes else "learned"
    stem = re.sub(r"[^a-z0-9._-]+", "-", out.stem.lower()).strip("-._") if out is not None else ""
    return stem if re.search("[a-z]", stem) else default


def _origin(logs: Sequence[Path], window: Window, calls: Sequence[Call]) -> str:
    files = ", ".join(path.name for path in logs[:3]) + (", ..." if len(logs) > 3 else "")
    first = datetime.fromtimestamp(calls[0].began, UTC)
    last = datetime.fromtimestamp(calls[-1].began, UTC)
    when = f"{first:%Y-%m-%d %H:%M:%S} to {last:%H:%M:%S} UTC" if first.year > 1970 else ""
    if window.is_whole:
        part = f"{len(calls):,} calls"
    else:
        part = f"{len(calls):,} of {window.of:,} calls (those with most trouble)"
    return f"{files}, {part}" + (f", {when}" if when else "")


def _tell(shown: ProgressReporter, learned: Learned, window: Window) -> None:
    shown.print(_examined(learned, window))
    shown.print(f"load: {learned.load.says} ({learned.load.evidence})")
    for program in learned.programs:
        shown.print(f"programs: {program.why}")
    if not learned.causes:
        _tell_no_cause(shown, learned, window)
    for place, cause in enumerate(learned.causes):
        where = f" of {cause.sandbox}" if cause.sandbox and cause.sandbox not in cause.says else ""
        label = "main cause" if place == 0 else "also"
        name = f"{cause.kind.replace('_', ' ')}: " if cause.kind in _NAMED else ""
        shown.print(f"{label}{where}: {name}{cause.says}", "bold" if place == 0 else "")
        shown.print(f"    {cause.evidence}")
    if learned.knowledge.unknown:
        shown.print(f"not known: {learned.knowledge.unknown}", "yellow")
    for remark in learned.remarks:
        shown.print(f"note: {remark}", "yellow")


def _examined(learned: Learned, window: Window) -> str:
    """Say which calls of the log were examined."""
    calls = learned.figures.calls
    if window.is_whole:
        return counted(calls, "call") + (f" in {learned.span:.4g} s" if learned.span else "")
    slower = ""
    if window.slower > 1:
        slower = f"; calls take {window.slower:.3g} times as long as usual"
    return (
        f"{calls:,} of {window.of:,} calls, the stretch of {learned.span:.4g} s with most trouble: "
        f"{window.troubled:,} of {window.troubled_of:,} calls that failed or were retried{slower}"
    )


def _tell_no_cause(shown: ProgressReporter, learned: Learned, window: Window) -> None:
    figures = learned.figures
    if not figures.is_enough:
        shown.print("too few calls to name a cause", "yellow")
        return
    if figures.failures:
        shown.print(f"{figures.failures}; the log does not show why", "yellow")
        return
    seen = ", as far as this log shows"
    if not window.is_whole:
        seen = f" in the {figures.calls:,} of {window.of:,} calls that were examined"
    shown.print(f"nothing went wrong{seen}", "green")


def _tell_check(shown: ProgressReporter, learned: Learned, checked: Checked) -> None:
    shown.print()
    rows = [
        (row.name, row.log, row.run, row.difference, row.bound, "" if row.agrees else "OUT")
        for row in checked.rows
    ]
    found = checked.cause.replace("_", " ")
    cause = learned.headline.replace("_", " ")
    bound = "any: it is rare" if checked.is_rare else "the same"
    rows.append(("main cause", cause, found, "", bound, "" if checked.same_cause else "OUT"))
    shown.table(rows, HEAD, texts=1)
    for sentence in checked.broken:
        shown.print(f"broken: {sentence}", "bold red")
    if checked.agrees:
        rest = "" if learned.figures.p95 else ", as far as a log without durations shows"
        shown.print(f"the scenario, run in virtual time, behaves like the log{rest}", "green")
    elif not checked.is_enough:
        few = counted(learned.figures.calls, "call")
        shown.print(
            f"{few}: too few to judge whether the scenario behaves like the log; "
            f"{FEWEST} are needed",
            "yellow",
        )
    else:
        for sentence in checked.reasons:
            shown.print(f"why {sentence}", "yellow")
        shown.print(
            "the scenario does NOT behave like the log in what is marked: use it with care"
            + ("; `sfusion sweep` recommends nothing from it" if checked.doubt else ""),
            "bold red",
        )
