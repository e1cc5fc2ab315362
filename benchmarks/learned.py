"""The figures of docs/learning.md. Not a test: `settings` takes about 15 minutes of CPU time, the
rest one.

    python -m benchmarks.learned [settings shares moved provoked divisors push closed-form]
    [--seeds 20] [--write docs/learning.md]

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

from sfusion.harness.lab.runs.tasks import Task
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.scenarios.training import TrainingPart
from sfusion.harness.lab.spreading import open_workers
from sfusion.harness.lab.toy import (
    expected,
    simulate,
    simulate_share,
    turning_share,
    uses_tool,
)
from sfusion.harness.learning.trained import (
    Spread,
    Trained,
    TrainedRun,
    at,
    play_training,
    seeds_of,
)
from sfusion_tools.advantages import Handling

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
TWO: list[dict[str, Any]] = [
    {"name": "head", "right": 0.6, "learns": 0},
    {"name": "tool", "right": 0.95, "calls": 1, "learns": 0},
]
"""Skills that stand still, as in the closed form."""
MOVED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "nothing: skills stand still": ({}, {}, {}),
    "skills learn, without the tool up to 0.8": ({"learns": 1, "best": 0.8}, {"learns": 1}, {}),
    "skills learn, without the tool up to 1": ({"learns": 1}, {"learns": 1}, {}),
    "skills learn, without the tool a tenth as fast": ({"learns": 0.1}, {"learns": 1}, {}),
    "questions of different difficulty (`spread: 2`)": ({"spread": 2}, {"spread": 2}, {}),
    "a format reward of 0.2, lost with the call": ({}, {}, {"format_reward": 0.2}),
    "programs run twice as long (`length: 2`)": ({}, {"length": 2}, {}),
    "after a loss it guesses, right with 0.3": ({}, {"guess": 0.3}, {}),
    "after a loss it calls again (`again: 1`)": ({}, {"again": 1}, {}),
    "lost samples a third as long, `seq-mean-token-mean`": (
        {"tokens": 60},
        {"tokens": 60, "tokens_lost": 20},
        {"aggregation": "seq-mean-token-mean"},
    ),
    "lost samples three times as long, `seq-mean-token-mean`": (
        {"tokens": 20},
        {"tokens": 20, "tokens_lost": 60},
        {"aggregation": "seq-mean-token-mean"},
    ),
}
"""What is changed of the head, of the tool and of the training of the closed form."""


def scenario(failure: dict[str, Any], tools: dict[str, Any], training: dict[str, Any]) -> Scenario:
    parts = {"tools": {**TOOLS, **tools}, "training": {**TRAINING, **training}, "sandbox": failure}
    return Scenario.from_data({"scenario": "learned", "about": "a cell of a table", **parts})


def settings(seeds: int) -> Iterator[Row]:
    """Healthy score and P(tool) at the end for each setting and failure."""
    yield ["setting", *FAILURES]
    part = TrainingPart.model_validate(TRAINING)
    twins = [uses_tool(part, simulate(part, seed)[-1].p) for seed in range(seeds)]
    healthy = Spread.of([simulate(part, seed)[-1].healthy for seed in range(seeds)])
    yield ["(without faults)", *[f"{healthy.middle:.2f}; {Spread.of(twins)}"] * len(FAILURES)]
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
    ended = f"{found.last(at('healthy')).middle:.2f}; {found.last(at('tool'))}"
    stops = sorted(run.stopped for run in runs if run.stopped is not None)
    if stops:
        where = f"{stops[0]}" if stops[0] == stops[-1] else f"{stops[0]} to {stops[-1]}"
        return f"{ended}; {len(stops)} of {len(runs)} stopped, in step {where}"
    assert all(len(run.steps) == found.part.steps for run in runs)
    same = all(run.steps[-1]["p"] == run.steps[-1]["twin"]["p"] for run in runs)
    return "as without faults" if same else ended


def shares(seeds: int) -> Iterator[Row]:
    """Healthy score and P(tool) at the end by the share of lost calls; P(several calls) at 10 %."""
    columns = (0.1, 0.3, 0.4, 0.6, 0.8)
    yield [
        "handling",
        *(f"{share:.0%} lost".replace("%", " %") for share in columns),
        "two calls, 10 % lost",
    ]
    for name, (handling, attempts, seen) in HANDLINGS.items():
        part = TrainingPart.model_validate({"lost": handling})
        row = [name]
        several = ""
        for share in columns:
            ends = [
                simulate_share(part, seed, share, attempts=attempts, seen=seen)[-1]
                for seed in range(seeds)
            ]
            healthy = Spread.of([end.healthy for end in ends])
            tool = Spread.of([uses_tool(part, end.p) for end in ends])
            row.append(f"{healthy.middle:.2f}; {tool}")
            several = several or str(Spread.of([uses_tool(part, end.p, 2) for end in ends]))
        yield [*row, several]


def moved(seeds: int) -> Iterator[Row]:
    """The share of lost calls that costs the tool, by what the closed form leaves out."""
    yield ["what is different", "scored zero", "loss mask only"]
    for name, (head, tool, training) in MOVED.items():
        behaviours = [{**TWO[0], **head}, {**TWO[1], **tool}]
        part = TrainingPart.model_validate({"steps": 200, "behaviours": behaviours, **training})
        found = [turning_share(part, handling) for handling in (Handling.ZERO, Handling.MASK)]
        yield [name, *("never" if share is None else f"{share * 100:.0f} %" for share in found)]


def provoked(seeds: int) -> Iterator[Row]:
    """A program that never ends where the attempt would be wrong: how likely it is after so many
    steps, and how often the model is really right."""
    counts = (50, 100, 200, 400)
    yield [
        "programs that never end",
        *(f"after {count} steps" for count in counts),
        "really right at first",
        "at the end",
    ]
    honest = {"name": "honest", "share": 0.9, "right": 0.55, "calls": 1, "learns": 0}
    hang = {"name": "hang", "share": 0.1, "right": 0.45, "calls": 1, "learns": 0, "provokes": 1}
    for name, endless in (("are scored", "scored"), ("count as lost, excluded", "lost")):
        part = TrainingPart.model_validate(
            {"steps": 400, "lost": "exclude", "endless": endless, "behaviours": [honest, hang]}
        )
        steps = expected(part, 0.0)
        yield [
            name,
            *(f"{steps[count - 1].p[1]:.2f}" for count in counts),
            f"{steps[0].healthy:.2f}",
            f"{steps[-1].healthy:.2f}",
        ]


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
                [simulate_share(part, seed, share)[-1] for seed in range(seeds)]
                for share in (0.6, 0.8)
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
        steps = [simulate_share(part, seed, share)[0] for seed in range(seeds)]
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
            ends = [
                uses_tool(part, simulate_share(part, seed, share)[-1].p)
                for seed in range(10 * seeds)
            ]
            row += [str(Spread.of(ends)), f"{expected(part, share)[-1].tool:.2f}"]
        yield row


TABLES: dict[str, tuple[Callable[[int], Iterator[Row]], str]] = {
    "settings": (settings, "What each setting is worth"),
    "shares": (shares, "How much is unlearned"),
    "moved": (moved, "What moves the threshold"),
    "provoked": (provoked, "What the model can cause must be scored"),
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
