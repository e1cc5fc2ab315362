"""``sfusion train``: let a toy learn through a scenario's faults, in virtual time, beside its
fault-free twin.

The scenario has a section `training`. Each seed plays it through the real stack: fake engine,
rollouts, tool, limiter, fake sandbox and GSM8K score. `--tools` puts another tool in its place.
Where calls are lost by themselves, with a known chance and without retries, the stack would change
nothing and is left out; the output says which of the two was played.

Exit code 0 if every promise held with every seed, 1 otherwise, 2 if the input is wrong, 3 if Ray is
missing.

Example: sfusion train outage-trained-as-zeros --seeds 20 --html train.html
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from sfusion_tools.wording import counted

from ...atomic_files import write_file
from ...commandline.declaring import command, option
from ...commandline.json_answer import text_stream, write_json
from ...commandline.options import WRITTEN, AddressAttribute, AddressVariable, Tools
from ...errors import BadOption
from ...lab.runs.seeded import SeededOptions
from ...lab.runs.tasks import Task, adapt_tasks, admit_tasks, read_tools
from ...reports import Reports
from ..train_summary import TrainReporter, headline, render_train, sentences
from ..trained import (
    Trained,
    TrainedRun,
    check_played,
    dump_training,
    play_through_stack,
    play_training,
    seeds_of,
)


@dataclass(frozen=True)
class TrainOptions(SeededOptions):
    """The options of the command."""

    tools: Tools = None
    env: AddressVariable = None
    attribute: AddressAttribute = None
    stack: Annotated[
        bool, option("Play through the stack also where that adds nothing but time.")
    ] = False
    dump: Annotated[
        Path | None,
        option(
            "Write the samples of the first seed as verl does, for sfusion poison.", "DIR", WRITTEN
        ),
    ] = None


@command
def train(options: TrainOptions) -> int:
    task = _task(options)
    part = task.scenario.training
    assert part is not None
    Reports(html=options.html, json=options.json).check()
    if options.dump is not None:
        if task.world != "sim":
            raise BadOption("--dump works only with tools that virtual time can play")
        if options.dump.exists() and not options.dump.is_dir():
            raise BadOption(f"--dump {options.dump}: is a file; give a folder")
        if old := sorted(options.dump.glob("*.jsonl")):
            raise BadOption(
                f"--dump {options.dump}: has a dump already ({old[0].name}); give a new folder"
            )
    player = play_through_stack if options.stack else play_training
    seeds = options.seeds_of(task)
    runs: list[TrainedRun] = []
    with (
        options.workers(seeds) as workers,
        TrainReporter(text_stream(options.json), seeds, "seeds") as shown,
    ):
        try:
            for run in workers.map(player, seeds_of(task, seeds)):
                runs.append(run)
                shown.progress(len(runs))
        except KeyboardInterrupt:
            done = f"{len(runs)} of {counted(seeds, 'seed')} ended; nothing was written"
            raise KeyboardInterrupt(done) from None
        check_played(runs)
        found = Trained(part, runs)
        if options.html is not None:
            write_file(
                options.html, render_train(found, task.name, " ".join(task.scenario.about.split()))
            )
        write_json(options.json, as_data(found, task))
        shown.tell(found, task.name)
        if options.dump is not None:
            count = dump_training(task.scenario, options.dump)
            shown.print(
                f"{counted(count, 'sample')} of seed {task.scenario.seed} in {options.dump}"
            )
    return int(any(tally.not_held for tally in found.promises.values()))


def _task(options: TrainOptions) -> Task:
    """Return the one cell to train, with the given tools."""
    tools, not_sim = read_tools(options.tools, env=options.env, attribute=options.attribute)
    cell = options.cell("wall" if not_sim else "sim")
    if cell.scenario.training is None:
        raise BadOption(
            f"{options.scenario} has no section `training`; see `sfusion explain "
            "training`, and the bundled "
            "outage-trained-as-zeros for an example"
        )
    (task,) = adapt_tasks([cell], tools=tools)
    admit_tasks([task], options.tools)
    return replace(task, tools_given=tools is not None)


def as_data(found: Trained, task: Task) -> dict[str, Any]:
    """Return the answer for ``--json``."""
    return {
        "train": 1,
        "scenario": task.name,
        "headline": headline(found),
        "sentences": sentences(found),
        "training": found.part.model_dump(mode="json"),
        "played": found.played,
        "summary": found.summary(),
        "promises": {
            name: {
                "not_held": tally.not_held,
                "states": list(tally.states),
                "sentence": tally.shown.sentence,
            }
            for name, tally in found.promises.items()
        },
        "runs": [{"seed": run.seed, "steps": run.steps} for run in found.runs],
    }
