"""Writes the reports that a command was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os.path import relpath
from pathlib import Path
from urllib.parse import quote

from sfusion.harness.reports.html import render_index, render_run
from sfusion.harness.reports.junit import junit
from sfusion.harness.reports.markdown import markdown
from sfusion.harness.reports.model import Run
from sfusion.harness.reports.summary import summary_json
from sfusion.harness.runs import RunResult
from sfusion.harness.runs.directory import scenario_text

PAGE = "report.html"


@dataclass(frozen=True)
class Reports:
    """Which reports are wanted, and where."""

    out: Path | None = None
    """Folder of the runs; each gets its page there."""
    html: Path | None = None
    junit: Path | None = None
    summary: Path | None = None
    json: Path | None = None

    def check(self) -> str:
        """Make the folders of the files; says what is in the way, before anything is run."""
        if self.out is not None and self.out.exists() and not self.out.is_dir():
            return f"--out {self.out}: a file is in the way; give a folder"
        for option in ("html", "junit", "summary", "json"):
            file: Path | None = getattr(self, option)
            if file is None:
                continue
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                if file.is_dir():
                    return f"--{option} {file}: is a folder; give a file"
                file.touch()
            except OSError as error:
                return f"--{option} {file}: cannot be written: {error.strerror}"
        return ""

    def ended(self, run: Run, folder: Path | None) -> None:
        """A run has ended; write its page beside its journal."""
        if folder is not None:
            (folder / PAGE).write_text(render_run(run), encoding="utf-8")

    def finish(self, runs: Sequence[Run]) -> None:
        """Write what is about all runs. A single run is its own summary page."""
        if self.html is not None:
            page = render_run(runs[0]) if len(runs) == 1 else render_index(runs, self._links(runs, self.html))
            self.html.write_text(page, encoding="utf-8")
        for file, text in ((self.junit, junit), (self.summary, markdown), (self.json, summary_json)):
            if file is not None:
                file.write_text(text(runs), encoding="utf-8")

    def _links(self, runs: Sequence[Run], page: Path) -> dict[str, str]:
        """Where the page of each run is, seen from the summary."""
        pages = {run.name: Path(run.directory, PAGE) for run in runs if run.directory}
        return {name: quote(Path(relpath(path, page.parent)).as_posix()) for name, path in pages.items()}


def run_of(result: RunResult, folder: Path | None = None) -> Run:
    """A result as reports see it; ``folder`` is where it was written."""
    scenario, header = result.task.scenario, result.journal.header
    difference = f"two runs of the same seed differ: {result.difference}" if result.difference else ""
    return Run(
        scenario.scenario,
        result.verdicts,
        cell=scenario.cell,
        about=scenario.about,
        world=result.task.world,
        sandboxes=header.get("sandboxes", ()),
        seed=scenario.seed,
        sfusion=str(header.get("sfusion", "")),
        events=result.journal.events,
        source=scenario_text(scenario),
        wall_seconds=result.wall_seconds,
        directory="" if folder is None else str(folder),
        error=result.error or difference,
    )
