"""``sfusion judge``: judge any client of Sandbox Fusion, reward function or advantage estimator.

Plays the scenarios of scenarios/judge that fit the client, in virtual time if possible, else on the
wall clock in a minute or two, and compares what it sent, read and reported with what really
happened. A function of one `task`, or a class with create, exec and delete, plays whole episodes in
sandboxes of Daytona, OpenEnv or E2B. An advantage estimator plays nothing: groups with a lost
sample are compared with groups without it. TARGET is module:name, file.py:name or a tool config
(YAML). A command gets programs as JSON lines on stdin and answers on stdout.

Exit code 0 if nothing beyond the baseline is broken, 1 otherwise, 2 if the input is wrong, 3 if the
command is missing, 4 if sfusion itself has a defect.

Example: sfusion judge my_client:run --junit trial.xml
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from sfusion_tools.errors import near

from ..commandline.declaring import command, option
from ..commandline.json_answer import text_stream, write_json
from ..commandline.options import (
    WHERE,
    WRITTEN,
    AddressAttribute,
    AddressVariable,
    Html,
    Json,
    Keyword,
    Seed,
    Service,
    Summary,
)
from ..errors import BadOption

_WORLDS = ("sim", "wall")


@dataclass(frozen=True)
class JudgeOptions:
    """The options of the command."""

    target: Annotated[list[str], Argument(metavar="TARGET | -- COMMAND", help="What to judge.")]
    env: AddressVariable = None
    attribute: AddressAttribute = None
    face: Service = None
    keyword: Keyword = ""
    seed: Seed = 0
    world: Annotated[
        str | None,
        option("World to play in; by default virtual time if possible.", "sim|wall", WHERE),
    ] = None
    baseline: Annotated[
        Path | None, option("File of accepted findings and wordings; others fail.")
    ] = None
    row: Annotated[
        bool, option("Print only what it does under each fault, as a row of docs/clients.md.")
    ] = False
    wordings: Annotated[bool, option("Print every wording, not only the first of each end.")] = (
        False
    )
    update: Annotated[
        bool, option("Accept what is found now: write it to the file of --baseline.")
    ] = False
    out: Annotated[
        Path | None,
        option(
            "Write a folder for each scenario, with journal, verdicts and page.", "DIR", WRITTEN
        ),
    ] = None
    html: Html = None
    junit: Annotated[Path | None, option("Write JUnit XML.", panel=WRITTEN)] = None
    summary: Summary = None
    json: Json = None


@command
def judge(options: JudgeOptions) -> int:
    from ..lab.runs.faces import read_face
    from ..reports.files import check_file, github_annotations, in_github_actions
    from ..terminal import printable
    from .reporting import TrialReporter, report_of, write_reports, write_runs
    from .trial import judge, write_baseline

    world = options.world
    _check_options(options)
    for name in ("html", "junit", "summary"):
        check_file(f"--{name}", getattr(options, name))
    first = options.target[0]
    is_target = len(options.target) == 1 and (":" in first or first.endswith((".yaml", ".yml")))
    target, words = (first, ()) if is_target else (None, tuple(options.target))
    if options.row:
        typer.echo(_row(options, target, words))
        return 0
    with TrialReporter(sys.stderr) as shown:
        result = judge(
            target,
            command=words,
            env=options.env,
            attribute=options.attribute,
            face=read_face(options.face),
            world=world,  # type: ignore[arg-type] # checked above
            seed=options.seed,
            scenes=options.keyword,
            baseline=None if options.update else options.baseline,
            tell=shown.tell,
        )
    if options.out is not None:
        write_runs(result, options.out)
    write_reports(
        result,
        html=options.html,
        junit=options.junit,
        summary=options.summary,
        out=options.out,
    )
    write_json(options.json, result.as_dict())
    text = result.table(all_wordings=options.wordings)
    out = text_stream(options.json)
    typer.echo(printable(text, keep="\n"), file=out)
    if in_github_actions():
        out.write(github_annotations([report_of(result)]))
    if options.update and options.baseline is not None:
        write_baseline(options.baseline, result)
        typer.echo(f"accepted, and written to {options.baseline}", file=out)
        return 0
    return 0 if result.ok else 1


def _check_options(options: JudgeOptions) -> None:
    """Raise BadOption for options that say nothing together."""
    world = options.world
    if world is not None and world not in _WORLDS:
        raise BadOption(f"--world {world}: no such world for a client; {near(world, _WORLDS)}")
    if options.update and options.baseline is None:
        raise BadOption("--update writes the file of --baseline; give both")
    if options.update and options.keyword:
        raise BadOption("--update accepts a whole trial, and -k plays a part of it; leave one out")


def _row(options: JudgeOptions, target: str | None, words: tuple[str, ...]) -> str:
    """Return what a client does under each fault, as a row of docs/clients.md."""
    from ..lab.client import EPISODE
    from ..lab.runs.faces import read_face
    from ..lab.shapes import shape_of
    from .episode_row import episode_row, markdown_episode_row
    from .row import fault_row, markdown_row

    shape = shape_of(target, env=options.env, attribute=options.attribute, command=words)
    if EPISODE in shape.takes:
        cells = episode_row(shape, read_face(options.face))
        return markdown_episode_row(shape.name, cells)
    return markdown_row(shape.name, fault_row(shape))
