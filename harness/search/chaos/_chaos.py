"""What ``sfusion chaos`` does, apart from its options."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence

from sfusion.harness.atomic_files import write_file
from sfusion.harness.lab.runs import write_run
from sfusion.harness.lab.worlds.ray_cluster import open_cluster
from sfusion.harness.reports import Reports, RunReport, write_page
from sfusion.harness.reports.run_report import duration
from sfusion.harness.search.chaos.page import render_page
from sfusion.harness.search.chaos.rounds import Round, play_rounds
from sfusion.harness.terminal import ProgressReporter
from sfusion_tools.wording import counted

_STYLES = {"held": "green", "broken": "bold red", "unknown": "yellow"}
_HEAD = ("", "round", "events", "peak/limit", "differ", "moved", "took")


def run_chaos(numbers: range, *, seed: int, nodes: int, schedules: int, reports: Reports) -> int:
    """Play rounds, print a table, write the reports and return the exit code."""
    reports.check()
    rounds: list[Round] = []
    cluster = open_cluster()
    try:
        with ProgressReporter(sys.stdout, len(numbers), "rounds of chaos") as shown:
            for one in play_rounds(seed, numbers, nodes, cluster, schedules):
                rounds.append(one)
                _write_runs(one, reports)
                _write_reports(rounds, seed, nodes, reports)  # each time: a run of hours may be interrupted
                line = f"[{len(rounds)}/{len(numbers)}] {one.state:<7} {one.scenario.scenario}: {', '.join(one.events)}"
                shown.progress(len(rounds), _counts(rounds), line=line)
                for problem in one.problems:
                    shown.print(f"  {problem}", "bold red")
                for problem in one.sim_problems:
                    shown.print(f"  in sim: {problem}", "bold red")
                for difference in one.disagreements:
                    shown.print(f"  sim and Ray differ: {difference}", "yellow")
            shown.print()
            shown.table(map(_row, rounds), _HEAD, [_STYLES[one.state] for one in rounds], texts=3)
            shown.print()
            worst = next(
                (state for state in ("broken", "unknown") if any(one.state == state for one in rounds)), "held"
            )
            shown.print(_headline(rounds), _STYLES[worst])
    finally:
        cluster.close()
    return 0 if worst == "held" else 1


def _write_reports(rounds: Sequence[Round], seed: int, nodes: int, reports: Reports) -> None:
    if reports.html is not None:
        page = render_page(rounds, _headline(rounds), reports.out, reports.html)
        write_file(reports.html, page)
    if reports.json is not None:
        data = {"seed": seed, "nodes": nodes, "rounds": [one.as_dict() for one in rounds]}
        write_file(reports.json, json.dumps(data, indent=2) + "\n")


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
