"""``sfusion sweep``: try a grid of settings in world sim and recommend one.

Plays the scenario with every combination of the values, each with several seeds, and reports throughput, the time of a
call (p50, p95, p99), refused and wasted attempts and the time of the whole batch. Of a scenario with `training` it
reports what is learned. The first varied value below `tools` is the one to recommend; the others are conditions. The
recommendation is the smallest value within 2% of the best throughput (5% if the seeds overlap) that breaks no promise.
`--vary scenario=a.yaml,b.yaml` compares scenarios.

Exit code 0 if a value is recommended, 1 if none can be, 2 if the input is wrong, 3 if Ray is missing.

Example: sfusion sweep throttled-gateway --vary tools.rate_limit=4..64 --html sweep.html
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from typer import Argument

from sfusion.harness.atomic_files import write_file
from sfusion.harness.commandline.declaring import command, option
from sfusion.harness.commandline.json_answer import text_stream, write_json
from sfusion.harness.commandline.options import WRITTEN, Html, Jobs, Json, Keyword, On, RayAddress, Trust
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
from sfusion.harness.learning import sweep as learning
from sfusion.harness.reports import Reports
from sfusion.harness.reports.files import check_file
from sfusion.harness.reports.line_chart import svg_file
from sfusion.harness.studies.sweep.grid import SCENARIO, Grid, Measured, label, play_sample, read_axes
from sfusion.harness.studies.sweep.result import SweepResult
from sfusion.harness.studies.sweep.telling import SweepReporter, charts, render_sweep
from sfusion_tools.errors import YamlError
from sfusion_tools.marked_yaml import read_marked
from sfusion_tools.wording import counted

_CHART_FILES = ("throughput.svg", "durations.svg", "wasted.svg", "batch.svg")


@dataclass(frozen=True)
class SweepOptions:
    """The options of the command."""

    scenario: Annotated[str, Argument(metavar="SCENARIO", help="A file, or the name of a bundled scenario.")]
    vary: Annotated[
        list[str] | None,
        option(
            "A value of the scenario and what to try: 4..64 (doubling, with the values halfway), 4..64/4 "
            "(steps), 4..64*9 (9 values), 32,64,128. Repeat for a grid.",
            "PATH=VALUES",
        ),
    ] = None
    seeds: Annotated[int, option("Number of seeds per setting.", min=1, max=1000)] = 10
    model: Annotated[
        Path | None, option("Server model to use instead of the scenario's, as `sfusion doctor --model-out` writes it.")
    ] = None
    keyword: Keyword = ""
    trust: Trust = False
    jobs: Jobs = 0
    on: On = "here"
    ray_address: RayAddress = None
    out: Annotated[
        Path | None, option("Write sweep.html, sweep.svg and sweep.json to this folder.", "DIR", WRITTEN)
    ] = None
    html: Html = None
    svg: Annotated[
        Path | None,
        option("Write the plots as one SVG file, or one file each if this is a folder.", "FILE|DIR", WRITTEN),
    ] = None
    json: Json = None


@command
def sweep(options: SweepOptions) -> int:
    grid = Grid(tuple(read_axes(options.vary or ())), options.seeds)
    task = _task(options)
    varied = next((axis.values for axis in grid.axes if axis.path == SCENARIO), ())
    tasks = list(grid.tasks(task, {name: _task(replace(options, scenario=str(name))) for name in varied}))
    check_trusted(tasks)
    if isinstance(task.scenario.tools, list) and task.file is not None:
        find_modules_beside([task.file])
        check_classes([task])
    svg = options.svg / _CHART_FILES[0] if options.svg is not None and _is_folder(options.svg) else options.svg
    Reports(out=options.out, html=options.html, json=options.json).check()
    check_file("--svg", svg)

    kinds = {one.scenario.training is None for one in tasks}
    if len(kinds) > 1:
        raise BadOption("--vary scenario: some have a section `training` and some do not; sweep them separately")
    if task.scenario.training is not None:
        return _sweep_training(options, grid, task, tasks)
    measured: list[Measured] = []
    jobs = min(options.jobs or os.cpu_count() or 1, grid.runs)
    with (
        open_workers(jobs, options.on, options.ray_address) as workers,
        SweepReporter(text_stream(options.json), grid) as shown,
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
        result = SweepResult(scenario.title, scenario.about, scenario.seed, grid, measured, scenario.observed)
        shown.finish(result)
    _write(result, options)
    return 1 if result.overall is None and not grid.compares else 0


def _sweep_training(options: SweepOptions, grid: Grid, task: Task, tasks: list[Task]) -> int:
    """Compare what is learned, instead of how fast calls are."""
    if options.svg is not None:
        raise BadOption("--svg: the sweep of a training has no plots; use --html or --json")
    axes, settings = [axis.path for axis in grid.axes], [[*map(label, values)] for values in grid.settings]
    out = text_stream(options.json)
    with open_workers(min(options.jobs or os.cpu_count() or 1, grid.runs), options.on, options.ray_address) as workers:
        found = learning.play_settings(workers, tasks, settings, out)
    learning.tell(found, axes, task.name, out)
    for page in filter(None, (options.html, options.out and options.out / "sweep.html")):
        write_file(page, learning.render(found, axes, task.name, " ".join(task.scenario.about.split())))
    for file in filter(None, (options.json, options.out and options.out / "sweep.json")):
        write_json(file, learning.as_data(found, axes, task.name))
    return 0


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
    # What was measured takes the place of what a log tells.
    scenario = vary(task.scenario, {"sandbox.model": model}, f"--model {options.model}")
    return replace(task, scenario=scenario.changed(observed=None))


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
