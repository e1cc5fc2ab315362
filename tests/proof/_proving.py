"""What ``python -m tests.proof`` does, apart from its options."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import typer

from sfusion.harness.atomic_files import write_file
from sfusion.harness.errors import BadOption
from sfusion.harness.terminal import ProgressReporter
from sfusion_tools.wording import counted
from tests.proof.proof import Proof
from tests.proof.table import HEAD, headline, page, state_of, table

_STYLES = {"green": "green", "caught": "green", "red": "bold red", "missed": "bold red"}


def list_mistakes(keyword: str) -> None:
    """Print each mistake and change with the promise that names it."""
    for row in Proof(keyword).rows.values():
        if row.promise and " " not in row.name:
            typer.echo(f"{row.name}  ({row.promise})\n    {row.about}")


def run_proof(keyword: str, *, jobs: int, page_file: Path | None) -> int:
    """Play the proof, print the table and return the exit code."""
    text = _page_text(page_file, keyword) if page_file is not None else ""
    proof = Proof(keyword)
    with ProgressReporter(sys.stdout, len(proof.cases), "playing mistakes") as shown:
        for done, result in enumerate(proof.run(jobs or os.cpu_count() or 1), 1):
            line = f"[{done}/{len(proof.cases)}] {result.row}" if done % 50 == 0 else ""
            shown.progress(done, result.row, line=line)
        rows = table(proof)
        shown.print()
        shown.table(rows, HEAD, [_STYLES[row[0]] for row in rows], texts=len(HEAD))
        shown.print()
        for row in proof.rows.values():
            for problem in row.problems:
                shown.print(f"{state_of(row)}: {row.name}: {problem}", _STYLES["missed"])
        for gap in proof.gaps:
            shown.print(gap, _STYLES["missed"])
        shown.print(f"{headline(proof)}.", "green" if proof.proved else "bold red")
    if page_file is not None:
        write_file(page_file, page(text, proof))
    return 0 if proof.proved else 1


def run_hunts(keyword: str, *, jobs: int, seeds: int, cases: int) -> int:
    """Hunt every mistake with every seed, print a line for each mistake and return the exit
    code."""
    from sfusion.harness.lab.spreading import open_workers
    from tests.proof.hunted import HEAD as HUNT_HEAD
    from tests.proof.hunted import Kill, hunt_mistake, prey_of, row

    hunts = list(prey_of(keyword, seeds, cases))
    rows: list[tuple[str, ...]] = []
    kills: list[Kill] = []
    with (
        open_workers(jobs) as workers,
        ProgressReporter(sys.stdout, len(hunts), "hunting mistakes") as shown,
    ):
        for done, kill in enumerate(workers.map(hunt_mistake, hunts), 1):
            kills.append(kill)
            line = ""
            if len(kills) == seeds:
                rows.append(row(kills))
                kills = []
                line = f"[{done}/{len(hunts)}] " + "  ".join(filter(None, rows[-1]))
            shown.progress(done, kill.prey.mistake, line=line)
        styles = {"found": "green", "held": "green", "missed": "bold red", "broken": "bold red"}
        shown.print()
        shown.table(rows, HUNT_HEAD, [styles[one[0]] for one in rows], texts=4)
        shown.print()
        by_state = {state: [one[1] for one in rows if one[0] == state] for state in styles}
        text = (
            f"{counted(len(by_state['found']), 'mistake')} found by most of "
            f"{counted(seeds, 'seed')}"
        )
        if by_state["missed"]:
            text += f"; missed: {', '.join(by_state['missed'])}"
        if by_state["broken"]:
            text += "; a right tool broke a promise: a defect, or a case that the hunt misjudges"
        failed = bool(by_state["missed"] or by_state["broken"])
        shown.print(text, "bold red" if failed else "green")
    return int(failed)


def run_trials(keyword: str, *, jobs: int) -> int:
    """Put everything on trial, print a table of counts and what is not as it should be, and
    return the exit code."""
    from sfusion.harness.commandline.keyword import read_keyword
    from sfusion.harness.lab.spreading import open_workers
    from tests.proof.trial import HEAD as TRIAL_HEAD
    from tests.proof.trial import TrialRow, cases, counts, judged

    chosen = list(cases(keyword=read_keyword(keyword)))
    if not chosen:
        raise BadOption(f"-k {keyword!r} matches nothing that can be put on trial")
    rows: list[TrialRow] = []
    with (
        open_workers(jobs) as workers,
        ProgressReporter(sys.stdout, len(chosen), "trials") as shown,
    ):
        for done, row in enumerate(workers.map(judged, chosen), 1):
            rows.append(row)
            line = f"[{done}/{len(chosen)}] {row.case.name}" if done % 50 == 0 else ""
            shown.progress(done, row.case.name, line=line)
        shown.print()
        shown.table(counts(rows), TRIAL_HEAD, ["" for _ in counts(rows)], texts=1)
        shown.print()
        for row in rows:
            if not row.fine or row.reason or len(rows) < 20:
                style = "" if row.fine else _STYLES["missed"]
                shown.print(
                    f"{row.state}: {row.case.kind}: {row.case.name}: {row.reason or row.sentence}",
                    style,
                )
        wrong = [row for row in rows if not row.fine]
        shown.print(
            f"{counted(len(rows), 'trial')}, {counted(len(wrong), 'surprise')}.",
            "bold red" if wrong else "green",
        )
    return 1 if wrong else 0


def shrink_mistakes(keyword: str, *, jobs: int) -> int:
    """Shrink each mistake, print a table and return the exit code."""
    from sfusion.harness.lab.spreading import open_workers
    from tests.proof.shrunk import HEAD as SHRUNK_HEAD
    from tests.proof.shrunk import prey_of, shrink_mistake

    prey = list(prey_of(keyword))
    found = []
    with (
        open_workers(jobs) as workers,
        ProgressReporter(sys.stdout, len(prey), "shrinking mistakes") as shown,
    ):
        for done, one in enumerate(workers.map(shrink_mistake, prey), 1):
            found.append(one)
            shown.progress(done, one.name, line=f"[{done}/{len(prey)}] {' '.join(one.row)}")
        styles = ["green" if one.small else "bold red" for one in found]
        shown.table([one.row for one in found], SHRUNK_HEAD, styles, texts=3)
        large = [one.name for one in found if not one.small]
        shown.print(
            f"{counted(len(found), 'mistake')}, "
            f"{f'not small: {large}' if large else 'each shown by a few calls'}."
        )
    return 1 if large else 0


def _page_text(file: Path, keyword: str) -> str:
    if keyword:
        raise BadOption("--page needs all mistakes; leave -k out")
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise BadOption(f"--page {file}: {error.strerror}") from None
    if "<!-- generated: python -m tests.proof --page -->\n" not in text:
        raise BadOption(
            f"--page {file}: the line <!-- generated: python -m tests.proof --page --> is missing"
        )
    return text
