"""``sfusion sweep``: try a grid of settings in world sim and recommend one.

Plays the scenario with every combination of the values, each with several seeds, and reports throughput, the time of a
call (p50, p95, p99), refused and wasted attempts and the time of the whole batch. For a scenario with `training` it
reports what is learned. The first varied value below `tools` is the one to recommend; the others are conditions. The
recommendation is the smallest value within 2% of the best throughput (5% if the seeds overlap) that breaks no promise.
`--vary scenario=a.yaml,b.yaml` compares scenarios.

Exit code 0 if a value is recommended, 1 if none can be, 2 if the input is wrong, 3 if Ray is missing.

Example: sfusion sweep throttled-gateway --vary tools.rate_limit=4..64 --html sweep.html
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from sfusion.harness.atomic_files import write_file
from sfusion.harness.commandline.declaring import command, option
from sfusion.harness.commandline.json_answer import text_stream, write_json
from sfusion.harness.commandline.options import WRITTEN
from sfusion.harness.errors import BadOption, ScenarioError
from sfusion.harness.lab.runs.seeded import SeededOptions
from sfusion.harness.lab.runs.tasks import Task, check_classes, check_trusted, find_modules_beside
from sfusion.harness.lab.scenarios.reading import vary
from sfusion.harness.learning import sweep as learning
from sfusion.harness.reports import Reports
from sfusion.harness.studies.sweep.grid import SCENARIO, Grid, Measured, label, play_sample, read_axes
from sfusion.harness.studies.sweep.result import SweepResult
from sfusion.harness.studies.sweep.telling import SweepReporter, render_sweep
from sfusion_tools.errors import YamlError
from sfusion_tools.marked_yaml import read_marked
from sfusion_tools.wording import counted


@dataclass(frozen=True)
class SweepOptions(SeededOptions):
    """The options of the command."""

    vary: Annotated[
        list[str] | None,
        option(
            "A value of the scenario and what to try: 4..64 (doubling, with the values halfway) or "
            "32,64,128. Repeat for a grid.",
            "PATH=VALUES",
        ),
    ] = None
    model: Annotated[
        Path | None, option("Server model to use instead of the scenario's, as `sfusion doctor --model-out` writes it.")
    ] = None
    out: Annotated[Path | None, option("Write sweep.html and sweep.json to this folder.", "DIR", WRITTEN)] = None


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
    Reports(out=options.out, html=options.html, json=options.json).check()

    kinds = {one.scenario.training is None for one in tasks}
    if len(kinds) > 1:
        raise BadOption("--vary scenario: some have a section `training` and some do not; sweep them separately")
    if task.scenario.training is not None:
        return _sweep_training(options, grid, task, tasks)
    measured: list[Measured] = []
    with (
        options.workers(grid.runs) as workers,
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
    _write(options, lambda: render_sweep(result), result.as_dict())
    return 1 if result.overall is None and not grid.compares else 0


def _sweep_training(options: SweepOptions, grid: Grid, task: Task, tasks: list[Task]) -> int:
    """Compare what is learned, instead of how fast calls are."""
    axes, settings = [axis.path for axis in grid.axes], [[*map(label, values)] for values in grid.settings]
    out = text_stream(options.json)
    with options.workers(grid.runs) as workers:
        found = learning.play_settings(workers, tasks, settings, out)
    learning.tell(found, axes, task.name, out)
    about = " ".join(task.scenario.about.split())
    _write(options, lambda: learning.render(found, axes, task.name, about), learning.as_data(found, axes, task.name))
    return 0


def _write(options: SweepOptions, render: Callable[[], str], answer: dict[str, Any]) -> None:
    out = options.out
    for page in filter(None, (options.html, out and out / "sweep.html")):
        write_file(page, render())
    for file in filter(None, (options.json, out and out / "sweep.json")):
        write_json(file, answer)


def _task(options: SweepOptions) -> Task:
    """Return the one cell to sweep, with the given model."""
    task = options.cell()
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
