"""``sfusion drift``: compare the fake with a real sandbox, or record what a real one answers.

Sends the probe suite to both and grades the differences between their answers. With --record the
answers of the real one are written to a file instead, without paths, hosts and secrets: a cassette,
which drift compares and the fake serves. It is written all at once at the end; if anything goes
wrong, an existing file is left untouched.

Exit code 0 if no difference would break a client, 1 if one would, 2 if the input is wrong, 3 if a
server cannot be reached, is not a sandbox, or stops answering.

Example: sfusion drift http://127.0.0.1:8080 --record answers.jsonl && sfusion drift answers.jsonl
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from typer import Argument

from sfusion_tools.errors import near
from sfusion_tools.wording import counted

from ....fakes.sandbox import EXECUTORS, PROFILES
from ...atomic_files import write_file
from ...commandline.declaring import command, option
from ...commandline.exits import fail, say
from ...commandline.json_answer import text_stream, write_json
from ...commandline.options import Force, Headers, Json, Keyword, read_headers
from ...errors import Unreachable
from ...reports import Reports
from ...reports.files import check_new_file
from ...terminal import ProgressReporter
from ..probes.cassette import read_recording, recording_lines
from ..probes.model import Probe, bundled_probes, chosen
from ..probes.raw_http import Server
from ..probes.sending import Sender, scrubber_for
from ..targets import open_targets, read_target
from .judging import (
    GRADES,
    DriftReport,
    ServerAnswers,
    compare_answers,
    fake_answers,
    live_answers,
    profile_of,
    recorded_answers,
)

BASELINES = {
    file.stem: file for file in sorted(Path(__file__).with_name("baselines").glob("*.jsonl"))
}
"""Bundled recordings of real servers, by name: what was recorded and the day of its source."""

_STYLES = {"breaking": "bold red", "visible": "yellow", "cosmetic": "dim", "variable": "dim"}
_MAX_ROWS = 200
"""Differences shown in a table; JSON has all of them (chosen)."""


def drift_headline(report: DriftReport) -> str:
    """The summary line."""
    counts = ", ".join(
        f"{report.count(grade)} {grade}"
        for grade in GRADES
        if grade != "variable" or report.count(grade)
    )
    probes = len({finding.difference.probe for finding in report.findings})
    return (
        f"{counts}: differences in {probes} of {report.compared} probes compared, "
        f"{len(report.not_comparable)} not comparable"
    )


def print_report(report: DriftReport, out: TextIO) -> None:
    """Print the differences, with colours only on a terminal."""
    terminal = ProgressReporter(out, 0, "")
    terminal.print(f"{report.left} against {report.right}", "bold")
    for note in report.notes:
        terminal.print(note, "dim")
    if report.ranked:
        terminal.print()
        shown = report.ranked[:_MAX_ROWS]
        head = ("grade", "probe", "place", report.left, report.right)
        rows = [
            (
                finding.grade,
                finding.difference.probe,
                finding.difference.place,
                *finding.difference.shown(44),
            )
            for finding in shown
        ]
        terminal.table(rows, head, [_STYLES[finding.grade] for finding in shown], texts=len(head))
        if len(report.ranked) > _MAX_ROWS:
            terminal.print(
                f"... and {len(report.ranked) - _MAX_ROWS} more; --json FILE has all of them"
            )
        terminal.print()
        for rule in dict.fromkeys(finding.rule for finding in report.ranked):
            terminal.print(f"{rule.grade}: {rule.name}: {rule.because}")
    if report.not_comparable:
        terminal.print()
        for reason in dict.fromkeys(reason for _, reason in report.not_comparable):
            probes = ", ".join(probe for probe, why in report.not_comparable if why == reason)
            terminal.print(f"not comparable: {reason}: {probes}")
    terminal.print()
    terminal.print(drift_headline(report))
    out.flush()


def as_data(report: DriftReport) -> dict[str, Any]:
    """Return the answer for ``--json``."""
    return {
        "drift": 1,
        "left": report.left,
        "right": report.right,
        "notes": list(report.notes),
        "compared": report.compared,
        "counts": {grade: report.count(grade) for grade in GRADES},
        "differences": [
            {
                **vars(finding.difference),
                "grade": finding.grade,
                "rule": finding.rule.name,
                "because": finding.rule.because,
            }
            for finding in report.findings
        ],
        "not_comparable": [
            {"probe": probe, "reason": reason} for probe, reason in report.not_comparable
        ],
    }


_REAL = "URL|docker[:IMAGE]|CASSETTE|BASELINE"
_LINES = 5
"""Lines of progress when stderr is not a terminal (chosen)."""


@dataclass(frozen=True)
class DriftOptions:
    """The options of the command."""

    real: Annotated[
        str | None,
        Argument(
            metavar=_REAL,
            help="The real sandbox, a recording of one (.jsonl), or the name of a bundled one "
            f"({', '.join(BASELINES)}).",
        ),
    ] = None
    baseline: Annotated[
        str | None,
        option("Compare with this bundled recording instead of the fake.", "|".join(BASELINES)),
    ] = None
    record: Annotated[
        Path | None, option("Write the answers of the real one to this file and compare nothing.")
    ] = None
    force: Force = False
    executor: Annotated[
        str,
        option(
            "How the fake runs code; with scripted, programs are not compared.", "python|scripted"
        ),
    ] = "python"
    profile: Annotated[
        str,
        option(
            "Which server the fake plays; auto: found by the real one's answers.",
            "2026-07|2025-06|auto",
        ),
    ] = "auto"
    keyword: Keyword = ""
    quick: Annotated[bool, option("Skip the slow probes.")] = False
    header: Headers = None
    timeout: Annotated[
        float, option("Time to wait for the answer to a probe.", "SECONDS", min=0.1)
    ] = 60.0
    show: Annotated[bool, option("Show the probes and send nothing.", names="--list")] = False
    json: Json = None


@command
def drift(options: DriftOptions) -> int:
    probes = chosen(bundled_probes(), keyword=options.keyword, quick=options.quick)
    if options.show:
        _list(probes)
        return 0
    if options.real is None:
        fail("give a real sandbox: a URL, docker, or the file of a recording")
    if options.record is not None:
        return _record(options, options.real, options.record, probes)
    if options.profile not in (*PROFILES, "auto"):
        fail(
            f"--profile {options.profile!r} is not known; "
            f"{near(options.profile, (*PROFILES, 'auto'))}"
        )
    runners = [name for name in EXECUTORS if name != "recorded"]
    if options.executor not in runners:
        fail(
            f"--executor {options.executor!r} cannot be compared; {near(options.executor, runners)}"
        )
    Reports(json=options.json).check()
    if options.baseline is not None and options.baseline not in BASELINES:
        fail(f"--baseline {options.baseline!r} is not known; {near(options.baseline, BASELINES)}")
    right = _real(options.real, probes, options)
    notes: list[str] = []
    if options.baseline is None:
        left = _fake(probes, right, options, notes)
    else:
        left = _recorded(options.baseline, probes)
    report = compare_answers(probes, left, right, notes)
    print_report(report, text_stream(options.json))
    write_json(options.json, as_data(report))
    if not report.compared:
        fail("no probe could be compared; the reasons are listed above")
    return 1 if report.breaking else 0


def _real(text: str, probes: Sequence[Probe], options: DriftOptions) -> ServerAnswers:
    headers = read_headers(options.header)
    if "://" not in text and (text.endswith(".jsonl") or Path(text).is_file()):
        return recorded_answers(read_recording(Path(text)), probes, name=Path(text).name)
    if text in BASELINES:
        return _recorded(text, probes)
    target = read_target(text)
    with (
        open_targets([target], say=say, check=False) as (sandbox,),
        probe_progress(str(target), len(probes)) as advance,
    ):
        return asyncio.run(
            live_answers(
                sandbox.url,
                probes,
                name=str(target),
                headers=headers,
                timeout=options.timeout,
                on_answer=advance,
            )
        )


def _recorded(baseline: str, probes: Sequence[Probe]) -> ServerAnswers:
    return recorded_answers(read_recording(BASELINES[baseline]), probes, name=baseline)


def _fake(
    probes: Sequence[Probe], real: ServerAnswers, options: DriftOptions, notes: list[str]
) -> ServerAnswers:
    profile = options.profile
    if profile == "auto":
        detected = profile_of(real.answers)
        profile = detected or "2026-07"
        if detected:
            why = "detected by its memory limits"
        else:
            why = "the default, as the answers do not show which it is"
        notes.append(f"the fake plays profile {profile} ({why}); --profile overrides it")
    with probe_progress(f"fake {profile}", len(probes)) as advance:
        return asyncio.run(
            fake_answers(
                probes,
                executor=options.executor,
                profile=profile,  # type: ignore[arg-type] # checked above, with a sentence for the user
                timeout=options.timeout,
                on_answer=advance,
            )
        )


def _record(options: DriftOptions, real: str, out: Path, probes: Sequence[Probe]) -> int:
    """Write the answers of a real sandbox to a file."""
    check_new_file("--record", out, force=options.force)
    headers = read_headers(options.header)
    target = read_target(real)
    try:
        with open_targets([target], say=say, check=False) as (sandbox,):
            server = Server.at(sandbox.url, headers)
            sent = [probe for probe in probes if server.can_send(probe)]
            with probe_progress("recording", len(sent)) as advance:
                answers = asyncio.run(
                    Sender(server, str(target), options.timeout).ask(sent, advance)
                )
            scrubber = scrubber_for(sandbox.url, headers, sent)
    except Unreachable as error:
        fail(f"{error}; nothing was written", error.exit_code)
    except KeyboardInterrupt:
        fail("interrupted; nothing was written", 130)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    write_file(
        out, recording_lines(sent, answers, target=str(target), recorded_at=now, scrubber=scrubber)
    )
    typer.echo(f"{out}: {counted(len(sent), 'answer')} of {target}")
    if raw := len(probes) - len(sent):
        typer.echo(
            f"left out {counted(raw, 'raw-byte probe')}, which cannot carry your header, "
            "prefix or key"
        )
    cassette = shlex.quote(str(out))
    typer.echo(f"serve them with: sfusion serve sandbox --executor recorded --cassette {cassette}")
    return 0


def _list(probes: Sequence[Probe]) -> None:
    width = max(len(probe.id) for probe in probes)
    for probe in probes:
        slow = " (slow)" if probe.slow else ""
        typer.echo(f"{probe.id:<{width}}  {probe.about}{slow}")
    typer.echo(counted(len(probes), "probe"))


@contextmanager
def probe_progress(label: str, total: int) -> Iterator[Callable[[Probe], None]]:
    """Show progress on stderr: a bar on a terminal, a few lines otherwise. Yields what to call
    after each probe."""
    done = 0
    with ProgressReporter(sys.stderr, total, label) as terminal:

        def advance(_: Probe) -> None:
            nonlocal done
            done += 1
            is_due = done == total or done * _LINES // total != (done - 1) * _LINES // total
            terminal.progress(done, line=f"{label}: {done} of {total} probes" if is_due else "")

        yield advance
