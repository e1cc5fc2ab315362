"""``sfusion run``: run scenarios and say which promises held."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def run(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH]...", help="Files, folders or names of bundled scenarios; all bundled by default."
        ),
    ] = None,
    world: Annotated[
        str | None,
        typer.Option(
            help="Where to run: sim (virtual time, the default) or ray (a real cluster; also for a real --sandbox)."
        ),
    ] = None,
    sandbox: Annotated[
        list[str] | None,
        typer.Option(
            metavar="fake|URL|docker[:IMAGE]",
            help="What stands behind the faults: the fake, a server, a container; several times for several.",
        ),
    ] = None,
    keyword: Annotated[str, typer.Option("-k", help="Only those with this in their name, as in pytest's -k.")] = "",
    seed: Annotated[int | None, typer.Option(min=0, help="Another seed than the files'.")] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Processes to run in; 0: one per processor.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for journals, verdicts and pages, one folder per scenario.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="File for one page about all runs.")] = None,
    junit: Annotated[Path | None, typer.Option(help="File for JUnit XML, which build systems read.")] = None,
    summary: Annotated[Path | None, typer.Option(help="File for Markdown, as for a pull request.")] = None,
    json: Annotated[Path | None, typer.Option(help="File for JSON with promises and outcomes.")] = None,
    twice: Annotated[bool, typer.Option("--twice", help="Run everything twice and compare the journals.")] = False,
    tools: Annotated[Path | None, typer.Option(help="Tool config (verl's YAML) to use instead of the files'.")] = None,
    ray_address: Annotated[
        str | None,
        typer.Option(help="World ray: a running cluster, HOST:PORT or auto; else one is started here."),
    ] = None,
    fake_on: Annotated[str, typer.Option(help="World ray: where the fake sandbox lives, driver or node.")] = "driver",
    listen: Annotated[
        str, typer.Option(help="World ray: address of this machine that the cluster's other machines reach.")
    ] = "127.0.0.1",
) -> None:
    """Run scenarios and say which promises held.

    Exit code 0: all, 1: broken or unknown, 2: bad input, 3: no Ray, no Docker, no sandbox.
    """
    from sfusion.harness.commands._ray import RayOptions
    from sfusion.harness.commands._running import run_command
    from sfusion.harness.reports import Reports

    code = run_command(
        paths or [],
        world=world,
        sandbox=sandbox or [],
        keyword=keyword,
        seed=seed,
        jobs=jobs,
        twice=twice,
        tools=tools,
        ray=RayOptions(address=ray_address, fake_on=fake_on, listen=listen),
        reports=Reports(out=out, html=html, junit=junit, summary=summary, json=json),
    )
    raise typer.Exit(code)
