"""What ``sfusion chaos`` does, apart from its options."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from sfusion.harness.atomic_files import write_file
from sfusion.harness.chaos.page import render_page
from sfusion.harness.chaos.rounds import Round, play_rounds
from sfusion.harness.reports import Reports, RunReport, write_page
from sfusion.harness.reports.run_report import duration
from sfusion.harness.runs import write_run
from sfusion.harness.terminal import ProgressReporter
from sfusion.harness.worlds.ray_cluster import open_cluster
from sfusion_tools.wording import counted

_STYLES = {"held": "green", "broken": "bold red"}
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
                state = _state(one)
                line = f"[{len(rounds)}/{len(numbers)}] {state:<7} {one.scenario.scenario}: {', '.join(one.events)}"
                shown.progress(len(rounds), f"{_broken(rounds)} broken", line=line)
                for problem in one.problems:
                    shown.print(f"  {problem}", "bold red")
                for problem in one.sim_problems:
                    shown.print(f"  in sim: {problem}", "bold red")
                for difference in one.disagreements:
                    shown.print(f"  sim and Ray differ: {difference}", "yellow")
            sentence = _headline(rounds)
            shown.print()
            shown.table(map(_row, rounds), _HEAD, [_STYLES[_state(one)] for one in rounds], texts=3)
            shown.print()
            shown.print(sentence, _STYLES["broken" if _broken(rounds) else "held"])
    finally:
        cluster.close()
    if reports.html is not None:
        write_file(reports.html, render_page(rounds, sentence, reports.out, reports.html))
    if reports.json is not None:
        data = {"seed": seed, "nodes": nodes, "rounds": [one.as_dict() for one in rounds]}
        write_file(reports.json, json.dumps(data, indent=2) + "\n")
    return 1 if _broken(rounds) else 0


def _state(one: Round) -> str:
    return "broken" if one.problems or one.sim_problems else "held"


def _broken(rounds: Sequence[Round]) -> int:
    return sum(_state(one) == "broken" for one in rounds)


def _write_runs(one: Round, reports: Reports) -> None:
    if reports.out is not None:
        for result in (one.real, one.sims[0]):
            write_page(RunReport.of_result(result, write_run(result, reports.out)))


def _row(one: Round) -> tuple[str, ...]:
    crowd = f"{one.count.peak}/{one.scenario.stated_limit}"
    differ = str(len(one.disagreements) or "no")
    took = duration(one.real.wall_seconds)
    return _state(one), str(one.number), "; ".join(one.events), crowd, differ, str(one.moved), took


def _headline(rounds: Sequence[Round]) -> str:
    broken = _broken(rounds)
    agreeing = sum(not one.disagreements for one in rounds)
    moved, calls = sum(one.moved for one in rounds), sum(one.outcomes[0].total() for one in rounds)
    held = "every promise held" if not broken else f"{broken} broke a promise or could not be judged"
    took = sum(one.real.wall_seconds for one in rounds) / len(rounds)
    return (
        f"{counted(len(rounds), 'round')}: {held}. Sim and Ray agree on every promise in {agreeing} of them; "
        f"{moved} of {counted(calls, 'call')} ended differently. {took:.1f} s per round."
    )
