"""``python -m tests.proof``: would the promises notice a mistake? Each is played, and the right
promise must break."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfusion.harness.cli import Edge
from sfusion.harness.errors import BadOption

app = typer.Typer(
    name="python -m tests.proof",
    cls=Edge,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    add_completion=False,
)


@app.callback()
def prove(
    keyword: Annotated[
        str, typer.Option("-k", help="Play only mistakes whose name matches, like pytest's -k.")
    ] = "",
    jobs: Annotated[int, typer.Option(min=0, help="Number of processes; 0 for one per CPU.")] = 0,
    names: Annotated[
        bool, typer.Option("--list", help="List the mistakes and changes, and play nothing.")
    ] = False,
    hunt: Annotated[
        bool,
        typer.Option(
            "--hunt", help="Hunt each mistake from scratch instead of playing it where it shows."
        ),
    ] = False,
    seeds: Annotated[
        int, typer.Option(min=1, help="With --hunt: number of seeds for each mistake.")
    ] = 5,
    cases: Annotated[
        int, typer.Option(min=1, help="With --hunt: cases after which a hunt gives up.")
    ] = 2000,
    page: Annotated[
        Path | None,
        typer.Option(help="Write the tables into this Markdown file, between its markers."),
    ] = None,
    shrink: Annotated[
        bool,
        typer.Option(
            "--shrink", help="Shrink each mistake from the scenario in which it is played."
        ),
    ] = False,
    trial: Annotated[
        bool,
        typer.Option(
            "--trial", help="Put right tools and mistakes, named and drawn, on trial instead."
        ),
    ] = False,
) -> None:
    """Prove that the promises can fail: play classic mistakes and see each caught by the promise
    that names it.

    A right tool of another class and our own stack run on every bundled cell in virtual time, and
    every promise must hold. Then tools that are right but for one mistake, and our own stack with
    one change, run on the scenarios that have the situation in which it shows: the promise that
    names the mistake must break, those that follow from it may, and all others must hold. Each
    promise needs a mistake that breaks it.

    With --hunt each mistake and change is looked for as `sfusion hunt` would, knowing nothing about
    it: most seeds must find it, by any promise that a right tool keeps in the same case (for a
    change, our stack without it). Without -k, right tools are hunted too, and nothing may be found
    in them.

    With --trial, right tools of several styles must not be accused, over five seeds, and mistakes
    must be caught: those with a name, and hundreds that are drawn as mutations of a right tool.

    With --shrink each mistake is reduced to the smallest scenario that shows it: 10 calls and 2
    rules must be enough.

    Use `sfusion run --tools FILE` to put your own tool to the same test.

    Exit code 0 if all of it is so, 1 if not, 2 if the input is wrong.
    """
    from tests.proof._proving import (
        list_mistakes,
        run_hunts,
        run_proof,
        run_trials,
        shrink_mistakes,
    )

    if names:
        list_mistakes(keyword)
        return
    if sum((hunt, shrink, trial, page is not None)) > 1:
        raise BadOption("--hunt, --shrink, --trial and --page exclude each other")
    if trial:
        raise typer.Exit(run_trials(keyword, jobs=jobs))
    if hunt:
        raise typer.Exit(run_hunts(keyword, jobs=jobs, seeds=seeds, cases=cases))
    if shrink:
        raise typer.Exit(shrink_mistakes(keyword, jobs=jobs))
    raise typer.Exit(run_proof(keyword, jobs=jobs, page_file=page))
