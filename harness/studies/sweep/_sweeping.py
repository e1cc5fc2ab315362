"""What ``sfusion sweep`` does, apart from its options."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from sfusion.harness.atomic_files import write_file
from sfusion.harness.commandline.json_answer import is_stdout, write_json
from sfusion.harness.errors import BadOption, ScenarioError
from sfusion.harness.lab.runs.tasks import (
    Task,
    check_classes,
    check_trusted,
    find_modules_beside,
    read_tasks,
    select_tasks,
)
from sfusion.harness.lab.scenarios import scenario_files
from sfusion.harness.lab.scenarios.reading import vary
from sfusion.harness.lab.spreading import open_workers
from sfusion.harness.reports import Reports
from sfusion.harness.reports.files import check_file
from sfusion.harness.reports.line_chart import svg_file
from sfusion.harness.studies.sweep.axes import read_axes
from sfusion.harness.studies.sweep.grid import Grid, Measured, play_sample
from sfusion.harness.studies.sweep.page import charts, render_sweep
from sfusion.harness.studies.sweep.reporter import SweepReporter
from sfusion.harness.studies.sweep.result import SweepResult
from sfusion_tools.errors import YamlError
from sfusion_tools.marked_yaml import read_marked
from sfusion_tools.wording import counted

_CHART_FILES = ("throughput.svg", "durations.svg", "wasted.svg", "batch.svg")


@dataclass(frozen=True)
class SweepOptions:
    """The options of the command."""

    scenario: str
    vary: tuple[str, ...] = ()
    seeds: int = 10
    model: Path | None = None
    keyword: str = ""
    jobs: int = 0
    on: str = "here"
    address: str | None = None
    out: Path | None = None
    html: Path | None = None
    svg: Path | None = None
    json: Path | None = None
    trust: bool = False


def run_sweep(options: SweepOptions) -> int:
    """Play the grid, print the table, write the files and return the exit code."""
    grid = Grid(tuple(read_axes(options.vary)), options.seeds)
    task = _task(options)
    tasks = list(grid.tasks(task))
    check_trusted(tasks)
    if isinstance(task.scenario.tools, list) and task.file is not None:
        find_modules_beside([task.file])
        check_classes([task])
    to_stdout = is_stdout(options.json)
    svg = options.svg / _CHART_FILES[0] if options.svg is not None and _is_folder(options.svg) else options.svg
    Reports(out=options.out, html=options.html, json=None if to_stdout else options.json).check()
    check_file("--svg", svg)

    measured: list[Measured] = []
    jobs = min(options.jobs or os.cpu_count() or 1, grid.runs)
    with (
        open_workers(jobs, options.on, options.address) as workers,
        SweepReporter(sys.stderr if to_stdout else sys.stdout, grid) as shown,
    ):
        played = workers.map(play_sample, tasks)
        done = 0
        try:
            for number, values in enumerate(grid.settings, 1):
                samples = []
                for sample in islice(played, grid.seeds):
                    samples.append(sample)
                    done += 1
                    shown.run_ended(done)
                measured.append(Measured.of(samples))
                shown.setting_ended(number, values, measured[-1])
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"{done} of {counted(grid.runs, 'run')} ended; nothing was written") from None
        scenario = task.scenario
        result = SweepResult(scenario.title, scenario.about, scenario.seed, grid, measured)
        shown.finish(result)
    _write(result, options)
    return 1 if result.overall is None else 0


def _write(result: SweepResult, options: SweepOptions) -> None:
    out = options.out
    for page in filter(None, (options.html, out and out / "sweep.html")):
        write_file(page, render_sweep(result))
    drawn = charts(result)
    if options.svg is not None and _is_folder(options.svg):
        for name, chart in zip(_CHART_FILES, drawn, strict=True):
            write_file(options.svg / name, svg_file([chart]))
    elif options.svg is not None:
        write_file(options.svg, svg_file(drawn))
    if out is not None:
        write_file(out / "sweep.svg", svg_file(drawn))
    for file in filter(None, (options.json, out and out / "sweep.json")):
        write_json(file, result.as_dict())


def _is_folder(path: Path) -> bool:
    return path.is_dir() or path.suffix != ".svg"


def _task(options: SweepOptions) -> Task:
    """Return the one cell to sweep, with the given model."""
    found, skipped = select_tasks(
        read_tasks(scenario_files([options.scenario]), "sim", trust=options.trust), keyword=options.keyword
    )
    if not found:
        why = "; ".join(skipped) or f"-k {options.keyword!r} matches no cell"
        raise BadOption(f"{options.scenario} cannot be swept: {why}")
    if len(found) > 1:
        names = ", ".join(task.name for task in found[:4]) + (", ..." if len(found) > 4 else "")
        raise BadOption(f"{options.scenario} has {len(found)} cells ({names}); choose one with -k")
    (task,) = found
    if options.model is None:
        return task
    model = _read_model(options.model)
    return replace(task, scenario=vary(task.scenario, {"sandbox.model": model}, f"--model {options.model}"))


def _read_model(file: Path) -> Any:
    try:
        data = read_marked(file).data
    except YamlError as error:
        raise ScenarioError(error.problems) from None
    sandbox = data.get("sandbox") if isinstance(data, dict) else None
    if not isinstance(sandbox, dict) or "model" not in sandbox:
        raise ScenarioError(
            [f"{file}:1: expected `sandbox: {{model: ...}}`, as `sfusion doctor URL --model-out FILE` writes it"]
        )
    return sandbox["model"]
