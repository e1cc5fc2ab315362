"""The figures of docs/learning.md. Not a test: `settings` takes about 15 minutes of CPU time, the
rest one.

    python -m benchmarks.learned [settings shares divisors push closed-form] [--seeds 20] [--write
    docs/learning.md]

`settings` plays trainings through the whole stack. The others need only its random draws, which
give the same curves (tests/harness/learning/test_training.py). With ``--write``, the first table
below the heading of each is replaced.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from sfusion.fakes.faults.chance import uniform
from sfusion.harness.lab.runs.tasks import Task
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.scenarios.training import TrainingPart
from sfusion.harness.lab.spreading import open_workers
from sfusion.harness.lab.toy import TrainedStep, expected_p, simulate, uses_tool
from sfusion.harness.learning.trained import (
    Spread,
    Trained,
    TrainedRun,
    at,
    play_training,
    seeds_of,
)

Row = Sequence[str]
TRAINING: dict[str, Any] = {"steps": 24, "prompts": 2, "group": 6, "learning_rate": 1.5}
TOOLS: dict[str, Any] = {"max_attempts": 1, "rate_limit": 64}
FAILURES: dict[str, dict[str, Any]] = {
    "40 % of requests fail": {
        "faults": [{"name": "flaky", "probability": 0.4, "what": {"status": 500}}]
    },
    "quota of 4 in flight": {"model": {"kind": "quota", "in_flight": 4}},
    "outage of 50 s": {
        "faults": [{"name": "outage", "between": ["60s", "110s"], "what": {"status": 503}}]
    },
}
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({}, {}),
    "limiter: `rate_limit: 4`": ({"rate_limit": 4}, {}),
    "retries: `max_attempts: 6`": ({"max_attempts": 6}, {}),
    "guard: `then: fail`": ({"guard": {"then": "fail"}}, {}),
    "`lost: mask`": ({}, {"lost": "mask"}),
    "`lost: exclude`": ({}, {"lost": "exclude"}),
    "limiter, retries and exclude": ({"rate_limit": 4, "max_attempts": 6}, {"lost": "exclude"}),
}
"""What is changed below `tools` and below `training`."""
HANDLINGS: dict[str, tuple[str, int, bool]] = {
    "scored zero": ("zero", 1, True),
    "loss mask only": ("mask", 1, True),
    "out of loss and baseline": ("exclude", 1, True),
    "group dropped": ("drop", 1, True),
    "scored zero, six attempts": ("zero", 6, True),
    "excluded, but the sandbox lies": ("exclude", 1, False),
}
"""What the trainer does, attempts of a call that fail independently, and whether the trainer
knows of a loss."""
TWO = [{"name": "head", "right": 0.6}, {"name": "tool", "right": 0.95, "calls": 1}]


def scenario(failure: dict[str, Any], tools: dict[str, Any], training: dict[str, Any]) -> Scenario:
    parts = {"tools": {**TOOLS, **tools}, "training": {**TRAINING, **training}, "sandbox": failure}
    return Scenario.from_data({"scenario": "learned", "about": "a cell of a table", **parts})


def settings(seeds: int) -> Iterator[Row]:
    """P(tool) at the end for each setting and failure."""
    yield ["setting", *FAILURES]
    part = TrainingPart.model_validate(TRAINING)
    twins = [uses_tool(part, simulate(part, seed)[-1].p) for seed in range(seeds)]
    yield ["(without faults)", *[str(Spread.of(twins))] * len(FAILURES)]
    jobs = min(os.cpu_count() or 1, seeds)
    with open_workers(jobs, "here", None) as workers:
        for name, (tools, training) in SETTINGS.items():
            row = [name]
            for failure in FAILURES.values():
                task = Task(scenario(failure, tools, training), "sim")
                row.append(told(list(workers.map(play_training, seeds_of(task, seeds))), training))
            yield row


def told(runs: Sequence[TrainedRun], training: dict[str, Any]) -> str:
    found = Trained(TrainingPart.model_validate({**TRAINING, **training}), runs)
    stops = sorted(run.stopped for run in runs if run.stopped is not None)
    if stops:
        where = f"{stops[0]}" if stops[0] == stops[-1] else f"{stops[0]} to {stops[-1]}"
        return f"{found.last(at('tool'))}; {len(stops)} of {len(runs)} stopped, in step {where}"
    assert all(len(run.steps) == found.part.steps for run in runs)
    same = all(run.steps[-1]["p"] == run.steps[-1]["twin"]["p"] for run in runs)
    return "as without faults" if same else str(found.last(at("tool")))


def trained(
    part: TrainingPart, seed: int, share: float, attempts: int = 1, *, seen: bool = True
) -> list[TrainedStep]:
    """Train without the stack; each attempt of a call fails with this chance."""

    def lost(call: str) -> bool:
        return all(uniform(seed, "lost", call, number) < share for number in range(attempts))

    return simulate(part, seed, lost, seen=seen)


def shares(seeds: int) -> Iterator[Row]:
    """P(tool) at the end by the share of calls that are lost, and P(several calls) at 10 %."""
    columns = (0.1, 0.3, 0.4, 0.6, 0.8)
    yield [
        "handling",
        *(f"{share:.0%} lost".replace("%", " %") for share in columns),
        "two calls, 10 % lost",
    ]
    for name, (handling, attempts, seen) in HANDLINGS.items():
        part = TrainingPart.model_validate({"lost": handling})
        ends = {
            share: [trained(part, seed, share, attempts, seen=seen)[-1].p for seed in range(seeds)]
            for share in columns
        }
        found = [str(Spread.of([uses_tool(part, p) for p in ends[share]])) for share in columns]
        yield [name, *found, str(Spread.of([uses_tool(part, p, 2) for p in ends[0.1]]))]


def divisors(seeds: int) -> Iterator[Row]:
    """P(tool) with the loss divided by all samples or by those in it: at the end, and around an
    outage of two steps."""
    yield ["handling", "loss divided by", "60 % lost", "80 % lost", "before an outage", "after it"]
    for name in ("loss mask only", "out of loss and baseline"):
        for by in ("all", "kept"):
            part = TrainingPart.model_validate({"lost": HANDLINGS[name][0], "divide_by": by})
            outages = [
                simulate(part, seed, lambda call: call[:4] in ("s020", "s021"))
                for seed in range(seeds)
            ]
            found = [
                [trained(part, seed, share)[-1] for seed in range(seeds)] for share in (0.6, 0.8)
            ]
            found += [[steps[step - 1] for steps in outages] for step in (19, 21)]
            yield [
                name,
                f"{by} samples",
                *(str(Spread.of([uses_tool(part, end.p) for end in ends])) for ends in found),
            ]


def push(seeds: int) -> Iterator[Row]:
    """What lost calls do to the advantages of one step of 32 groups of 8, as means over the
    seeds."""
    yield [
        "calls lost",
        "samples lost",
        "weight of lost",
        "signal only through losses",
        "push as trained / mask / excluded",
    ]
    part = TrainingPart.model_validate({"steps": 1, "prompts": 32})
    for share in (0.1, 0.3, 0.6):
        steps = [trained(part, seed, share)[0] for seed in range(seeds)]
        pushes = [fmean(step.push[name] for step in steps) for name in ("zero", "mask", "exclude")]
        yield [
            f"{share * 100:.0f} %",
            f"{fmean(step.lost / step.samples for step in steps) * 100:.0f} %",
            f"{fmean(step.lost_weight for step in steps) * 100:.0f} %",
            f"{fmean(step.only_lost for step in steps):.1f} of 32 groups",
            " / ".join(f"{value:+.2f}" for value in pushes),
        ]


def closed_form(seeds: int) -> Iterator[Row]:
    """Two behaviours, ten times as many seeds: P(tool) at the end, and what the expected update
    gives."""
    yield ["calls lost", "scored zero", "expected", "loss mask only", "expected"]
    for share in (0.2, 0.35, 0.4, 0.6, 0.7):
        row = [f"{share * 100:.0f} %"]
        for handling in ("zero", "mask"):
            part = TrainingPart.model_validate({"behaviours": TWO, "lost": handling})
            ends = [uses_tool(part, trained(part, seed, share)[-1].p) for seed in range(10 * seeds)]
            row += [str(Spread.of(ends)), f"{uses_tool(part, expected_p(part, share)):.2f}"]
        yield row


TABLES: dict[str, tuple[Callable[[int], Iterator[Row]], str]] = {
    "settings": (settings, "What each setting is worth"),
    "shares": (shares, "How much is unlearned"),
    "divisors": (divisors, "What to divide by"),
    "push": (push, "What one step pushes"),
    "closed-form": (closed_form, "The closed form"),
}
"""What makes a table, and the heading above it."""


def table(rows: Iterator[Row]) -> str:
    """Return it as Markdown."""
    head = next(rows)
    listed = [head, ["---"] * len(head), *rows]
    made = "".join(f"| {' | '.join(row)} |\n" for row in listed)
    return re.sub(r"\[(\S+) to (\S+)\]", r"(\1–\2)", made)  # shorter than in a sentence


def replaced(page: str, heading: str, made: str) -> str:
    """Return the page with another first table below a heading."""
    found = re.search(
        rf"^#+ {re.escape(heading)}\n(?:(?!#|\|).*\n)*((?:\|.*\n)+)", page, re.MULTILINE
    )
    if found is None:
        raise SystemExit(f"no table below the heading {heading!r}")
    return f"{page[: found.start(1)]}{made}{page[found.end(1) :]}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "tables", nargs="*", choices=[[], *TABLES], default=[], help="which ones; default: all"
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--write", type=Path, help="the page whose tables are replaced")
    given = parser.parse_args(arguments)
    for name in given.tables or TABLES:
        make, heading = TABLES[name]
        made = table(make(given.seeds))
        print(f"{heading}\n\n{made}", flush=True)
        if given.write is not None:
            given.write.write_text(
                replaced(given.write.read_text(encoding="utf-8"), heading, made), encoding="utf-8"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
