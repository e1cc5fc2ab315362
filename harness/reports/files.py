"""The report files of a command: which ones are wanted, and writing them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os.path import relpath
from pathlib import Path
from urllib.parse import quote

from sfusion.harness.atomic_files import check_writable, write_file
from sfusion.harness.commandline.json_answer import is_stdout, write_answer
from sfusion.harness.errors import BadOption, HarnessError
from sfusion.harness.lab.journal import PAGE
from sfusion.harness.reports.html import render_index, render_run
from sfusion.harness.reports.run_report import RunReport
from sfusion.harness.reports.summaries import junit, markdown, summary_json


@dataclass(frozen=True)
class Reports:
    """Where to write which report; None where it is not wanted."""

    out: Path | None = None
    """Folder of the runs; the page of each run goes beside its journal."""
    html: Path | None = None
    junit: Path | None = None
    summary: Path | None = None
    json: Path | None = None

    def check(self) -> None:
        """Create the folders and see whether the files can be written, before anything runs; raises HarnessError."""
        if self.out is not None:
            if self.out.exists() and not self.out.is_dir():
                raise HarnessError(f"--out {self.out}: is a file; give a folder")
            try:
                self.out.mkdir(parents=True, exist_ok=True)
                check_writable(self.out / PAGE)
            except OSError as error:
                raise HarnessError(f"--out {self.out}: cannot be written: {error.strerror}") from error
        for option in ("html", "junit", "summary", "json"):
            if option != "json" or not is_stdout(self.json):
                check_file(f"--{option}", getattr(self, option))

    def wanted(self) -> str:
        """Return the options of the files about all runs."""
        given = [option for option in ("html", "junit", "summary", "json") if getattr(self, option) is not None]
        return ", ".join(f"--{option}" for option in given)

    def write(self, runs: Sequence[RunReport]) -> None:
        """Write the files about all runs. The HTML file of a single run is its own page."""
        if self.html is not None:
            page = render_run(runs[0]) if len(runs) == 1 else render_index(runs, _links(runs, self.html))
            write_file(self.html, page)
        for file, text in ((self.junit, junit), (self.summary, markdown)):
            if file is not None:
                write_file(file, text(runs))
        if self.json is not None:
            write_answer(self.json, summary_json(runs))


def check_file(option: str, file: Path | None) -> None:
    """Create the folder of a file and see whether it can be written, before anything runs; raises HarnessError."""
    if file is None:
        return
    if str(file) == "-":
        raise HarnessError(f"{option} -: this report cannot go to stdout; give a file")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.is_dir():
            raise HarnessError(f"{option} {file}: is a folder; give a file")
        check_writable(file)
    except OSError as error:
        raise HarnessError(f"{option} {file}: cannot be written: {error.strerror}") from error


def check_new_file(option: str, file: Path, *, force: bool) -> None:
    """See whether a file can be created, or with ``force`` replaced; raises BadOption."""
    if file.is_dir():
        raise BadOption(f"{option} {file}: is a folder; name a file in it")
    if file.exists() and not file.is_file():
        raise BadOption(f"{option} {file}: is not a regular file; give another name")
    if file.exists() and not force:
        raise BadOption(f"{option} {file}: exists already; give another name, or --force to replace it")
    if not file.parent.is_dir():
        raise BadOption(f"{option} {file}: there is no folder {file.parent}")


def write_page(run: RunReport) -> None:
    """Write the page of a run beside its journal, if that was written."""
    if run.directory:
        write_file(Path(run.directory, PAGE), render_run(run))


def _links(runs: Sequence[RunReport], page: Path) -> dict[str, str]:
    """The address of each run's page, relative to the page with the summary."""
    return {run.name: address(Path(run.directory, PAGE), page) for run in runs if run.directory}


def address(file: Path, page: Path) -> str:
    """Return the address of a file, as a page links to it."""
    return quote(Path(relpath(file, page.parent)).as_posix())
