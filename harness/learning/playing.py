"""Plays trainings: one run for each seed, here or spread over processes and machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from sfusion.harness.lab.runs.runner import run_one
from sfusion.harness.lab.runs.tasks import Task
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.worlds import sim
from sfusion.harness.learning.trained import TrainedRun
from sfusion.harness.rollouts.dump_writer import StepDump, request_record, sample_record
from sfusion_tools.rollout import AsyncRolloutRequest


def seeds_of(task: Task, seeds: int) -> Iterator[Task]:
    """Yield a task for each seed, beginning with that of the scenario."""
    scenario = task.scenario
    for number in range(seeds):
        yield replace(task, scenario=scenario.changed(seed=scenario.seed + number) if number else scenario)


def play_training(task: Task) -> TrainedRun:
    """Play the training of one seed and keep what it learned."""
    result = run_one(task)
    steps = [event for event in result.journal.events if event["event"] == "trained"]
    stops = [event["step"] for event in result.journal.events if event["event"] == "training_stopped"]
    return TrainedRun(task.scenario.seed, steps, result.verdicts, result.error, stops[0] if stops else None)


def dump_training(scenario: Scenario, folder: Path) -> int:
    """Play a training once more and write its samples as verl does; return how many."""
    dumps: dict[int, StepDump] = {}

    def add(request: AsyncRolloutRequest, score: float, step: int) -> None:
        dump = dumps.setdefault(step, StepDump(folder, step))
        dump.add(_place(request), sample_record(request, score, step), request_record(request))

    sim.run(scenario, on_sample=add)
    return sum(len(dump.finish()[0]) for dump in dumps.values())


def _place(request: AsyncRolloutRequest) -> int:
    """Return where a sample stands in its step: by prompt, then by sibling."""
    prompt = int((request.group_id or "p0").rpartition("p")[2])
    return prompt * 10_000 + request.rollout_offset


def errors_of(runs: Sequence[TrainedRun]) -> list[str]:
    return list(dict.fromkeys(run.error for run in runs if run.error))
