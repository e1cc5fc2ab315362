"""``sfusion replay``: run recorded runs again and compare the journals.

Exit code 0 if every journal is the same, every promise held and every file is as its run wrote it,
1 if not, 2 if a folder is not a run or a run is not trusted, 3 if something external is missing.

Example: sfusion replay runs/throttled-gateway
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ...commandline.declaring import command
from ...commandline.options import Schedule, Trust
from ...core.journal import Journal, first_difference, is_reordered
from ...errors import BadOption, JournalError, ScenarioError
from ...terminal import printable
from ..runs import RunResult, Task, adapt_tasks, read_run, run_one
from ..runs.directory import SCENARIO, edited_line
from ..scenarios.parts import read_schedule
from ..scenarios.reading import JOURNAL


@command
def replay(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Folders of runs, as written by --out.")
    ],
    trust: Trust = False,
    schedule: Schedule = None,
) -> int:
    other_schedule = None if schedule is None else read_schedule(schedule)
    codes = {0}
    for run in runs:
        for folder in _folders(run):
            codes |= _replay(folder, trust=trust, schedule=other_schedule, named=schedule)
    return 1 if 1 in codes else max(codes)


def _replay(
    folder: Path, *, trust: bool, schedule: dict[str, int] | None, named: str | None
) -> set[int]:
    """Run a recorded run again, print how it compares, and return exit codes."""
    codes: set[int] = set()
    edited = edited_line(folder)
    if edited:
        codes.add(1)
        _say(edited)
    try:
        task, recorded, _ = read_run(folder)
    except (JournalError, ScenarioError) as error:
        if not edited:
            raise
        _say(f"{folder} cannot be replayed: {error}")
        return codes

    _check_replayable(folder, task, recorded, with_schedule=schedule is not None)
    (task,) = adapt_tasks([replace(task, trusted=trust)], schedule=schedule)
    result = run_one(task)
    codes.add(result.exit_code)
    if result.error:
        _say(f"{task.name}: {result.error}")
        return codes

    if schedule is not None:
        _say(f"{task.name}: with schedule {named}: {result.state}")
    elif not _compare(task, recorded, result):
        codes.add(1)
    for verdict in result.verdicts:
        if verdict.failed:
            _say(f"  {verdict.state}: {verdict.promise}: {verdict.sentence}")
    return codes


def _check_replayable(folder: Path, task: Task, recorded: Journal, *, with_schedule: bool) -> None:
    """Refuse runs that cannot be replayed, or not with another schedule."""
    sandboxes = recorded.header.get("sandboxes")
    if sandboxes:
        raise BadOption(
            f"{folder} was run against {', '.join(sandboxes)}, which cannot be replayed; "
            f"run it again with sfusion run {shlex.quote(str(folder / SCENARIO))} --sandbox TARGET"
        )
    if with_schedule and task.world != "sim":
        raise BadOption(
            f"--schedule: {folder} was run in world {task.world}, where the machines "
            "decide the order"
        )


def _compare(task: Task, recorded: Journal, result: RunResult) -> bool:
    """Print how two journals compare; return False if they should be the same but are not."""
    found = first_difference(recorded, result.journal)
    if found is None:
        _say(f"{task.name}: the same journal ({result.digest}), {result.state}")
        return True
    if task.world != "sim":
        _say(
            f"{task.name}: world {task.world} is not deterministic, so journals are not "
            f"compared; this run: {result.state}"
        )
        return True

    line, then, now = found
    _say(f"{task.name}: the journals differ in line {line}\n  then {then}\n  now  {now}")
    if is_reordered(recorded, result.journal):
        _say("  all events are the same; some of one instant come in another order")
    if recorded.header.get("sfusion") != result.journal.header["sfusion"]:
        _say(f"  it was recorded with sfusion {recorded.header.get('sfusion')}")
    return False


def _say(text: str) -> None:
    """Print what may quote a stranger's file."""
    typer.echo(printable(text, keep="\n"))


def _folders(run: Path) -> list[Path]:
    """The folder itself, or the runs below a folder that was given to --out."""
    if (run / JOURNAL).is_file() or not run.is_dir():
        return [run]
    return sorted(path.parent for path in run.glob(f"*/{JOURNAL}")) or [run]
