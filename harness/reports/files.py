"""The report files of a command: JUnit XML, Markdown, JSON and pages; which ones are wanted, and
writing them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from os.path import relpath
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from ..atomic_files import check_writable, write_file
from ..commandline.json_answer import is_stdout, write_answer
from ..core.journal import PAGE
from ..core.place import Place
from ..core.verdict import Verdict
from ..errors import BadOption, HarnessError
from .html import render_index, render_run
from .run_report import RunReport, duration, encodable, headline

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SIGNS = {"held": "✅", "broken": "❌", "unknown": "❔"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]#|~@!])")
SENTENCE_LENGTH = 300
"""Characters of a sentence in a summary (chosen)."""
_MOST_SHOWN = 12
"""Rows that a table shows at once; a longer one is collapsed. Chosen: about half a screen."""


def junit(runs: Sequence[RunReport]) -> str:
    """JUnit XML for CI systems: a suite per run, a test case per promise."""
    top = ElementTree.Element("testsuites", name="sfusion")
    for run in runs:
        suite = ElementTree.SubElement(top, "testsuite", name=_clean(run.name))
        for verdict in run.verdicts:
            _add_case(suite, run, verdict)
        for word, verdict in run.tolerated:
            _add_skipped(suite, run, verdict, word)
        if run.error:
            case = ElementTree.SubElement(
                suite, "testcase", classname=_clean(run.name), name="run", time="0"
            )
            ElementTree.SubElement(
                case, "error", message=_clean(run.error), type="error"
            ).text = _clean(run.error)
        _count(suite, [run])
    _count(top, runs)
    ElementTree.indent(top)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        + ElementTree.tostring(top, encoding="unicode")
        + "\n"
    )


def _count(element: ElementTree.Element, runs: Sequence[RunReport]) -> None:
    verdicts = [verdict for run in runs for verdict in run.verdicts]
    tolerated = sum(len(run.tolerated) for run in runs)
    skipped = sum(verdict.state == "not_applicable" for verdict in verdicts) + tolerated
    errors = sum(bool(run.error) for run in runs)
    element.set("tests", str(len(verdicts) + tolerated + errors))
    element.set("failures", str(sum(verdict.failed for verdict in verdicts)))
    element.set("errors", str(errors))
    element.set("skipped", str(skipped))
    element.set("time", f"{sum(run.wall_seconds or 0.0 for run in runs):.3f}")


def _add_case(suite: ElementTree.Element, run: RunReport, verdict: Verdict) -> None:
    if verdict.state == "not_applicable":
        _add_skipped(suite, run, verdict, "not applicable")
        return
    case = _new_case(suite, run, verdict)
    said = f"{verdict.state}: {verdict.sentence}"
    if verdict.failed:  # a promise that could not be judged has not passed
        failure = ElementTree.SubElement(case, "failure", message=_clean(said), type=verdict.state)
        failure.text = _clean(
            f"{verdict.promise} {said}\nworld {run.world}, seed {run.seed}\n{run.replay}".strip()
        )


def _add_skipped(suite: ElementTree.Element, run: RunReport, verdict: Verdict, word: str) -> None:
    """Add a case that neither passes nor fails, with the word for that."""
    case = _new_case(suite, run, verdict)
    ElementTree.SubElement(case, "skipped", message=_clean(f"{word}: {verdict.sentence}"))


def _new_case(suite: ElementTree.Element, run: RunReport, verdict: Verdict) -> ElementTree.Element:
    """Add a case; each of a run has the same share of its time."""
    count = len(run.verdicts) + len(run.tolerated)
    share = (run.wall_seconds or 0.0) / count
    names = {"classname": _clean(run.name), "name": _clean(verdict.promise)}
    return ElementTree.SubElement(suite, "testcase", {**names, "time": f"{share:.3f}"})


def _clean(text: str) -> str:
    """The text with the characters that XML cannot represent, not even escaped, replaced."""
    return _NOT_XML.sub("\ufffd", text)


def markdown(runs: Sequence[RunReport]) -> str:
    """Markdown for a comment on a pull request: broken promises first, then a table of all runs,
    collapsed if long."""
    lines = [f"### {_SIGNS[_worst(runs)]} sfusion: {headline(runs)}", ""]
    for run in runs:
        if run.state != "held":
            lines += [*_problem_lines(run), ""]
    table = _table_lines(runs)
    if len(runs) > _MOST_SHOWN:
        table = ["<details><summary>All runs</summary>", "", *table, "", "</details>"]
    return "\n".join([*lines, *table]) + "\n"


def _problem_lines(run: RunReport) -> list[str]:
    """What did not hold in a run, with the command that replays it."""
    lines = [f"**{escaped(run.name)}** (world {run.world}, seed {run.seed})", ""]
    if run.error:
        lines.append(f"- {_SIGNS['broken']} {escaped(_short(run.error))}")
    for verdict in (*run.in_state("broken"), *run.in_state("unknown")):
        promise = verdict.promise.replace("`", "")
        sentence = escaped(_short(verdict.sentence))
        lines.append(f"- {_SIGNS[verdict.state]} `{promise}` {verdict.state}: {sentence}")
    if run.replay:
        lines.append(f"- replay: `{run.replay.replace('`', '')}`")
    return lines


def _table_lines(runs: Sequence[RunReport]) -> list[str]:
    """A row for each run."""
    lines = [
        "| | scenario | promises held | calls | time | world |",
        "|---|---|---:|---:|---:|---|",
    ]
    for run in runs:
        cells = [
            _SIGNS[run.state],
            escaped(run.name),
            run.score,
            str(run.calls),
            duration(run.seconds),
            run.world,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def github_annotations(runs: Sequence[RunReport]) -> str:
    """Workflow commands of GitHub: an error for each broken promise, a warning for each that could
    not be judged."""
    lines = []
    for run in runs:
        problems = [("error", "run", run.error)] if run.error else []
        problems += [
            ("error", verdict.promise, verdict.sentence) for verdict in run.in_state("broken")
        ]
        problems += [
            ("warning", verdict.promise, verdict.sentence) for verdict in run.in_state("unknown")
        ]
        for level, what, said in problems:
            title = _property(f"{run.name} {what}")
            lines.append(f"::{level} {_on_line(run.place)}title={title}::{_command(said)}\n")
    return "".join(lines)


def in_github_actions() -> bool:
    """Does a job of GitHub Actions read what is printed?"""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def _on_line(place: Place | None) -> str:
    """Return the properties that put an annotation on a line."""
    return "" if place is None else f"file={_property(place.file)},line={place.line},"


def _property(text: str) -> str:
    return _command(text).replace(":", "%3A").replace(",", "%2C")


def _command(text: str) -> str:
    return encodable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _worst(runs: Sequence[RunReport]) -> str:
    states = {run.state for run in runs}
    return next(
        (state for state in ("broken", "unknown") if state in states), "held" if runs else "unknown"
    )


def _short(text: str) -> str:
    return text if len(text) <= SENTENCE_LENGTH else text[: SENTENCE_LENGTH - 1] + "…"


def escaped(text: str) -> str:
    """Escape everything that Markdown interprets: links, mentions, HTML, line breaks."""
    return _SPECIAL.sub(r"\\\1", escape(" ".join(encodable(text).split()), quote=False))


def summary(runs: Sequence[RunReport]) -> dict[str, Any]:
    """Every run with its verdicts and the outcomes of its calls, as ``sfusion run --json`` writes
    them."""
    return {"summary": 1, "headline": headline(runs), "runs": [_run(run) for run in runs]}


def summary_json(runs: Sequence[RunReport]) -> str:
    return json.dumps(summary(runs), indent=2, default=str) + "\n"


def _run(run: RunReport) -> dict[str, Any]:
    return {
        "scenario": run.scenario,
        "cell": run.cell,
        "world": run.world,
        **({"sandboxes": list(run.sandboxes)} if run.sandboxes else {}),
        "seed": run.seed,
        "state": run.state,
        "error": run.error or None,
        "seconds": run.seconds,
        "wall_seconds": run.wall_seconds,
        "calls": sum(run.outcomes.values()),
        "outcomes": dict(run.outcomes),
        "directory": run.directory or None,
        "promises": [verdict.as_dict() for verdict in run.verdicts],
    }


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
        """Create the folders and see whether the files can be written, before anything runs; raises
        HarnessError."""
        if self.out is not None:
            if self.out.exists() and not self.out.is_dir():
                raise HarnessError(f"--out {self.out}: is a file; give a folder")
            try:
                self.out.mkdir(parents=True, exist_ok=True)
                check_writable(self.out / PAGE)
            except OSError as error:
                raise HarnessError(
                    f"--out {self.out}: cannot be written: {error.strerror}"
                ) from error
        for option in ("html", "junit", "summary", "json"):
            if option != "json" or not is_stdout(self.json):
                check_file(f"--{option}", getattr(self, option))

    def wanted(self) -> str:
        """Return the options of the files about all runs."""
        given = [
            option
            for option in ("html", "junit", "summary", "json")
            if getattr(self, option) is not None
        ]
        return ", ".join(f"--{option}" for option in given)

    def write(self, runs: Sequence[RunReport]) -> None:
        """Write the files about all runs. The HTML file of a single run is its own page."""
        if self.html is not None:
            links = {
                run.name: address(Path(run.directory, PAGE), self.html)
                for run in runs
                if run.directory
            }
            write_file(
                self.html, render_run(runs[0]) if len(runs) == 1 else render_index(runs, links)
            )
        for file, text in ((self.junit, junit), (self.summary, markdown)):
            if file is not None:
                write_file(file, text(runs))
        if self.json is not None:
            write_answer(self.json, summary_json(runs))


def check_file(option: str, file: Path | None) -> None:
    """Create the folder of a file and see whether it can be written, before anything runs; raises
    HarnessError."""
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
        raise BadOption(
            f"{option} {file}: exists already; give another name, or --force to replace it"
        )
    if not file.parent.is_dir():
        raise BadOption(f"{option} {file}: there is no folder {file.parent}")


def write_page(run: RunReport) -> None:
    """Write the page of a run beside its journal, if that was written."""
    if run.directory:
        write_file(Path(run.directory, PAGE), render_run(run))


def address(file: Path, page: Path) -> str:
    """Return the address of a file, as a page links to it."""
    return quote(Path(relpath(file, page.parent)).as_posix())
