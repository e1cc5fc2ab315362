"""``sfusion run``: run scenarios and report which promises held."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def run(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH", help="Files, folders or names of bundled scenarios; by default all bundled ones."
        ),
    ] = None,
    world: Annotated[
        str | None,
        typer.Option(help="Where to run: sim (virtual time, the default) or ray (a real cluster, real time)."),
    ] = None,
    sandbox: Annotated[
        list[str] | None,
        typer.Option(
            metavar="fake|URL|docker[:IMAGE]",
            help="Sandbox to use: the fake (default), a server or a container. Repeat for several.",
        ),
    ] = None,
    keyword: Annotated[str, typer.Option("-k", help="Run only scenarios whose name matches, like pytest's -k.")] = "",
    seed: Annotated[int | None, typer.Option(min=0, help="Seed to use instead of the one in each file.")] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            metavar="SEED|priority:SEED[:CHANGES]",
            help="World sim: run what is ready at the same time in another order, drawn from this seed.",
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Number of processes; 0 for one per CPU.")] = 0,
    on: Annotated[str, typer.Option(help="World sim: run on this machine (here) or on a Ray cluster (ray).")] = "here",
    address: Annotated[
        str | None, typer.Option(help="With --on ray: the cluster, HOST:PORT; by default the one running here.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write journal, verdicts and report of each run to a folder below this one.")
    ] = None,
    history: Annotated[
        int,
        typer.Option(
            min=0, max=10_000, help="With --out: number of runs of each scenario to keep; 0 for the latest only."
        ),
    ] = 20,
    html: Annotated[Path | None, typer.Option(help="Write an HTML report of all runs.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML.")] = None,
    summary: Annotated[Path | None, typer.Option(help="Write a Markdown summary, e.g. for a pull request.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write promises and outcomes as JSON.")] = None,
    twice: Annotated[bool, typer.Option("--twice", help="Run everything twice and compare the journals.")] = False,
    tools: Annotated[
        Path | None, typer.Option(help="Tool config (verl's YAML) to use instead of the scenarios' tools.")
    ] = None,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="Let the files run what they name: code (executor: python) and tool classes. Bundled scenarios and "
            "--tools do not need it.",
        ),
    ] = False,
    ray_address: Annotated[
        str | None,
        typer.Option(help="World ray: use a running cluster, HOST:PORT or auto, instead of starting one."),
    ] = None,
    fake_on: Annotated[str, typer.Option(help="World ray: where the fake sandbox runs, driver or node.")] = "driver",
    listen: Annotated[
        str, typer.Option(help="World ray: address of this machine that the other machines of the cluster can reach.")
    ] = "127.0.0.1",
    start_timeout: Annotated[
        float | None,
        typer.Option(help="World ray: seconds that the processes and tools of a run may take to start (default 90)."),
    ] = None,
) -> None:
    """Run scenarios and report which promises held.

    Exit code 0 if every promise held, 1 if one was broken or unknown, 2 if the input is wrong, 3 if something outside
    is missing or fails (Ray, Docker, the sandbox, the disk), 4 by a defect of sfusion.
    """
    from sfusion.harness.lab.commands._ray import RayOptions
    from sfusion.harness.lab.commands._running import run_command
    from sfusion.harness.reports import Reports

    code = run_command(
        paths or [],
        world=world,
        sandbox=sandbox or [],
        keyword=keyword,
        seed=seed,
        schedule=schedule,
        jobs=jobs,
        on=on,
        address=address,
        twice=twice,
        tools=tools,
        trust=trust,
        ray=RayOptions(address=ray_address, fake_on=fake_on, listen=listen, start_timeout=start_timeout),
        history=history,
        reports=Reports(out=out, html=html, junit=junit, summary=summary, json=json),
    )
    raise typer.Exit(code)
