"""``sfusion chaos``: kill, stop and crash the parts of a real Ray cluster under load, and judge every round.

A cluster of several nodes is started on this machine. In each round the real tool, client and limiter make calls to a
fake sandbox in a process of its own, while workers, nodes, the limiter or the driver are killed or stopped, the limit
changes, calls are cancelled or the sandbox crashes: at points of the journal, such as the 17th grant. The same scenario
is then played in sim, and differences between the two worlds are reported.

Exit code 0 if every promise held, 1 if one was broken or unknown, 2 if the input is wrong, 3 if Ray is missing.

Example: sfusion chaos --rounds 20 --seed 4 --out runs
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

from sfusion.harness.commandline.declaring import command, option
from sfusion.harness.commandline.json_answer import is_stdout, text_stream, write_json
from sfusion.harness.commandline.options import Json, Out, Seed
from sfusion.harness.lab.runs import write_run
from sfusion.harness.lab.worlds.ray_cluster import open_cluster
from sfusion.harness.reports import Reports, RunReport, write_page
from sfusion.harness.reports.run_report import duration
from sfusion.harness.search.chaos.rounds import Round, play_rounds
from sfusion.harness.terminal import ProgressReporter
from sfusion_tools.wording import counted

_STYLES = {"held": "green", "broken": "bold red", "unknown": "yellow"}
_HEAD = ("", "round", "events", "peak/limit", "differ", "moved", "took")


@command
def chaos(
    rounds: Annotated[int, option("Number of rounds.", min=1)] = 10,
    seed: Seed = 1,
    first: Annotated[int, option("Number of the first round, to repeat or continue a run.", min=1)] = 1,
    nodes: Annotated[int, option("Most nodes of the cluster that a round uses.", min=1, max=16)] = 3,
    schedules: Annotated[
        int, option("Random schedules with which each round is also played in sim.", min=0, max=1000)
    ] = 2,
    out: Out = None,
    json_file: Json = None,
) -> int:
    reports = Reports(out=out, json=json_file)
    reports.check()
    numbers = range(first, first + rounds)
    played: list[Round] = []
    with (
        closing(open_cluster()) as cluster,
        ProgressReporter(text_stream(json_file), len(numbers), "rounds of chaos") as shown,
    ):
        for one in play_rounds(seed, numbers, nodes, cluster, schedules):
            played.append(one)
            _write_runs(one, reports)
            if not is_stdout(json_file):
                _write_rounds(played, seed, nodes, json_file)  # each time: a run of hours may be interrupted
            line = f"[{len(played)}/{len(numbers)}] {one.state:<7} {one.scenario.scenario}: {', '.join(one.events)}"
            shown.progress(len(played), _counts(played), line=line)
            for problem in one.problems:
                shown.print(f"  {problem}", "bold red")
            for problem in one.sim_problems:
                shown.print(f"  in sim: {problem}", "bold red")
            for difference in one.disagreements:
                shown.print(f"  sim and Ray differ: {difference}", "yellow")
        shown.print()
        shown.table(map(_row, played), _HEAD, [_STYLES[one.state] for one in played], texts=3)
        shown.print()
        worst = next((state for state in ("broken", "unknown") if any(one.state == state for one in played)), "held")
        shown.print(_headline(played), _STYLES[worst])
    if is_stdout(json_file):
        _write_rounds(played, seed, nodes, json_file)
    return 0 if worst == "held" else 1


def _write_rounds(rounds: Sequence[Round], seed: int, nodes: int, file: Path | None) -> None:
    write_json(file, {"seed": seed, "nodes": nodes, "rounds": [one.as_dict() for one in rounds]})


def _counts(rounds: Sequence[Round]) -> str:
    """Return how many rounds are in which state."""
    counts = Counter(one.state for one in rounds)
    return ", ".join(f"{counts[state]} {state}" for state in _STYLES if counts[state])


def _write_runs(one: Round, reports: Reports) -> None:
    if reports.out is not None:
        for result in (one.real, one.sims[0]):
            write_page(RunReport.of_result(result, write_run(result, reports.out)))


def _row(one: Round) -> tuple[str, ...]:
    crowd = f"{one.count.peak}/{one.scenario.stated_limit}"
    differ = str(len(one.disagreements) or "no")
    took = duration(one.real.wall_seconds)
    return one.state, str(one.number), "; ".join(one.events), crowd, differ, str(one.moved), took


def _headline(rounds: Sequence[Round]) -> str:
    agreeing = sum(not one.disagreements for one in rounds)
    moved, calls = sum(one.moved for one in rounds), sum(one.outcomes[0].total() for one in rounds)
    held = "every promise held" if all(one.state == "held" for one in rounds) else _counts(rounds)
    took = sum(one.real.wall_seconds for one in rounds) / len(rounds)
    return (
        f"{counted(len(rounds), 'round')}: {held}. Sim and Ray agree on every promise in {agreeing} of them; "
        f"{moved} of {counted(calls, 'call')} ended differently. {took:.1f} s per round."
    )
