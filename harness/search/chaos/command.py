"""``sfusion chaos``: planned kills on a real Ray cluster, judged round by round and compared with sim."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def chaos(
    rounds: Annotated[int, typer.Option(min=1, help="Number of rounds.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Determines every round.")] = 1,
    first: Annotated[int, typer.Option(min=1, help="Number of the first round, to repeat or continue a run.")] = 1,
    nodes: Annotated[int, typer.Option(min=1, max=16, help="Most nodes of the cluster that a round uses.")] = 3,
    schedules: Annotated[
        int, typer.Option(min=0, max=1000, help="Random schedules with which each round is also played in sim.")
    ] = 2,
    out: Annotated[
        Path | None, typer.Option(help="Write journal, verdicts and report of each run to a folder below this one.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write an HTML page of all rounds.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the rounds as JSON.")] = None,
) -> None:
    """Kill, stop and crash the parts of a real Ray cluster under load, and judge every round.

    A cluster of several nodes is started on this machine. In each round the real tool, client and limiter make calls to
    a fake sandbox in a process of its own, while workers, nodes, the limiter or the driver are killed or stopped, the
    limit changes, calls are cancelled or the sandbox crashes: at points of the journal, such as the 17th grant. The
    same scenario is then played in sim, and where the two worlds differ is reported.

    Exit code 0 if every promise held, 1 if one was broken or unknown, 2 if the input is wrong, 3 if Ray is missing.
    """
    from sfusion.harness.reports import Reports
    from sfusion.harness.search.chaos._chaos import run_chaos

    numbers = range(first, first + rounds)
    reports = Reports(out=out, html=html, json=json)
    raise typer.Exit(run_chaos(numbers, seed=seed, nodes=nodes, schedules=schedules, reports=reports))
