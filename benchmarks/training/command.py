"""``python -m benchmarks.training``: real trainings, and what the toy predicted of them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfusion.harness.cli import Edge

if TYPE_CHECKING:
    from .conditions import Condition

app = typer.Typer(
    name="python -m benchmarks.training",
    cls=Edge,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    add_completion=False,
    help="Real trainings of a small decoder whose tool calls are lost, and what the toy predicted."
    " `baselines`, `predict`, `held-out` and `report`, in this order, make docs/learning.md's"
    " figures; `all` does the four.",
)

RESULTS = Path(__file__).parent / "results"

Folder = Annotated[Path, typer.Option(help="Where results are kept.")]
Seeds = Annotated[str, typer.Option(help="Seeds of models and trainings, with commas.")]
SizeName = Annotated[
    str, typer.Option("--size", help="gpu, or cpu: few and small, for a processor.")
]
Jobs = Annotated[int, typer.Option(min=1, help="Processes that answer tool calls.")]

_CORES = os.cpu_count() or 1


@app.command()
def baselines(
    folder: Folder = RESULTS, seeds: Seeds = "1,2,3", size: SizeName = "gpu", jobs: Jobs = _CORES
) -> None:
    """Train without lost calls: all that the toy is told."""
    from . import plans

    plan = plans.baselines if size == "gpu" else plans.few_baselines
    _train(list(plan(_numbers(seeds))), folder / "baselines.jsonl", size, jobs)


@app.command()
def predict(folder: Folder = RESULTS, seeds: Seeds = "1,2,3", size: SizeName = "gpu") -> None:
    """Let the toy predict the trainings with lost calls; before they are played."""
    from . import plans
    from .predictions import predict_all
    from .sizes import SIZES

    plan = plans.held_out if size == "gpu" else plans.few_held_out
    known = list(read_lines(folder / "baselines.jsonl"))
    out = folder / "predictions.jsonl"
    out.unlink(missing_ok=True)
    for prediction in predict_all(list(plan(_numbers(seeds))), known, SIZES[size]):
        append_line(out, prediction)
        print(f"{prediction['name']}: {prediction['told']}, {prediction['predicted']:.2f}")


@app.command()
def held_out(
    folder: Folder = RESULTS, seeds: Seeds = "1,2,3", size: SizeName = "gpu", jobs: Jobs = _CORES
) -> None:
    """Train with lost calls: shares, an outage, a quota, retries; four handlings."""
    from . import plans

    plan = plans.held_out if size == "gpu" else plans.few_held_out
    _train(list(plan(_numbers(seeds))), folder / "trainings.jsonl", size, jobs)


@app.command()
def report(
    folder: Folder = RESULTS,
    images: Annotated[Path | None, typer.Option(help="Where the curves are drawn.")] = None,
    write: Annotated[
        Path | None, typer.Option(help="A page with marks between which the tables are put.")
    ] = None,
) -> None:
    """Print what came out beside what was predicted, and draw the curves."""
    from .report import put_into, write_report

    told = write_report(folder, images or folder / "plots")
    print(told)
    if write is not None:
        put_into(write, told)


@app.command(name="all")
def everything(
    folder: Folder, seeds: Seeds = "1", size: SizeName = "cpu", jobs: Jobs = _CORES
) -> None:
    """Make everything again, into another folder."""
    baselines(folder, seeds, size, jobs)
    predict(folder, seeds, size)
    held_out(folder, seeds, size, jobs)
    report(folder)


def _numbers(seeds: str) -> list[int]:
    return [int(seed) for seed in seeds.split(",")]


def _train(conditions: Sequence[Condition], out: Path, size_name: str, jobs: int) -> None:
    """Play trainings and write each as a line when it has ended."""
    from .running import describe_machine, teach_all, train_all
    from .sizes import SIZES
    from .stacks import Stacks

    out.parent.mkdir(parents=True, exist_ok=True)
    size = SIZES[size_name]
    machine = describe_machine() | {"size": size_name}
    began = time.monotonic()
    with Stacks(jobs) as stacks:
        taught = teach_all(conditions, size, stacks)
        seconds = time.monotonic() - began
        print(f"{seconds:6.0f} s: {len(taught)} models for {len(conditions)} trainings", flush=True)
        for records in train_all(conditions, taught, size, stacks):
            for record in records:
                append_line(out, record | {"machine": machine})
                print(f"{time.monotonic() - began:6.0f} s: {_line(record)}", flush=True)


def _line(record: dict[str, Any]) -> str:
    before = record["before"]
    after = record["after"]
    told = [f"{record['name']:42}"]
    for key in ("score", "tool", "several", "head"):
        told.append(f"{key} {before[key]:.2f} -> {after[key]:.2f}")
    return "  ".join(told)


def append_line(file: Path, record: dict[str, Any]) -> None:
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(record) + "\n")


def read_lines(file: Path) -> Iterator[dict[str, Any]]:
    lines: Iterable[str] = file.read_text(encoding="utf-8").splitlines()
    for line in lines:
        yield json.loads(line)
