"""``sfusion replay``: run recorded runs again and compare the journals.

Exit code 0 if every journal is the same, every promise held and every file is as its run wrote it,
1 if not, 2 if a file is damaged or not trusted, 3 if something external is missing.

Example: sfusion replay runs/throttled-gateway
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ...commandline.declaring import command
from ...commandline.options import Schedule, Trust
from ...core.journal import first_difference, is_reordered
from ...errors import BadOption
from ...terminal import printable
from ..runs import adapt_tasks, read_run, run_one
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
    codes = {0}
    other = None if schedule is None else read_schedule(schedule)
    for folder in [one for run in runs for one in _folders(run)]:
        task, recorded, _ = read_run(folder)
        if line := edited_line(folder):
            codes.add(1)
            _say(line)
        task = replace(task, trusted=trust)
        if real := recorded.header.get("sandboxes"):
            raise BadOption(
                f"{folder} was run against {', '.join(real)}, which cannot be replayed; "
                "run it again with "
                f"sfusion run {folder / SCENARIO} --sandbox TARGET"
            )
        if other is not None and task.world != "sim":
            raise BadOption(
                f"--schedule: {folder} was run in world {task.world}, where the machines "
                "decide the order"
            )
        (task,) = adapt_tasks([task], schedule=other)
        result = run_one(task)
        codes.add(result.exit_code)
        if result.error:
            _say(f"{task.name}: {result.error}")
            continue
        found = first_difference(recorded, result.journal)
        if other is not None:
            _say(f"{task.name}: with schedule {schedule}: {result.state}")
        elif found is None:
            _say(f"{task.name}: the same journal ({result.digest}), {result.state}")
        elif task.world != "sim":
            text = (
                f"world {task.world} is not deterministic, so journals are not "
                f"compared; this run: {result.state}"
            )
            _say(f"{task.name}: {text}")
        else:
            codes.add(1)
            _say(
                f"{task.name}: the journals differ in line {found[0]}\n  then {found[1]}\n "
                f" now  {found[2]}"
            )
            if is_reordered(recorded, result.journal):
                _say("  all events are the same; some of one instant come in another order")
            if recorded.header.get("sfusion") != result.journal.header["sfusion"]:
                _say(f"  it was recorded with sfusion {recorded.header.get('sfusion')}")
        for verdict in result.verdicts:
            if verdict.failed:
                _say(f"  {verdict.state}: {verdict.promise}: {verdict.sentence}")
    return 1 if 1 in codes else max(codes)


def _say(text: str) -> None:
    """Print what may quote a stranger's file."""
    typer.echo(printable(text, keep="\n"))


def _folders(run: Path) -> list[Path]:
    """The folder itself, or the runs below a folder that was given to --out."""
    if (run / JOURNAL).is_file() or not run.is_dir():
        return [run]
    return sorted(path.parent for path in run.glob(f"*/{JOURNAL}")) or [run]
