"""Trainings over several seeds: how they are played, and their curves with their spread beside
those of the twins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from sfusion_tools.rollout import AsyncRolloutRequest

from ..core.dumps.writer import StepDump, request_record, sample_record
from ..core.figures import percentile
from ..core.journal import Event
from ..core.verdict import State
from ..errors import HarnessError
from ..lab.promises import Verdict
from ..lab.runs.runner import run_one
from ..lab.runs.tasks import Task
from ..lab.scenarios.model import Scenario
from ..lab.scenarios.training import TrainingPart
from ..lab.worlds import sim
from .without_stack import train_without_stack, why_stack

Figure = Callable[[Event], float]
"""Takes a figure from the event of a trained step."""


def at(*path: str) -> Figure:
    """Return what takes the figure at these keys."""

    def take(event: Event) -> float:
        value: Any = event
        for key in path:
            value = value[key]
        return float(value)

    return take


def lost_share(event: Event) -> float:
    return float(event["lost"] / max(1, event["samples"]))


@dataclass(frozen=True)
class TrainedRun:
    """The training of one seed."""

    seed: int
    steps: list[Event]
    verdicts: list[Verdict]
    error: str = ""
    stopped: int | None = None
    """The step in which the guard stopped the job."""
    why_stack: str = ""
    """Why it was played through the stack; empty if it was not."""


@dataclass(frozen=True)
class Spread:
    """A figure over seeds: the median, and the values that 10 % and 90 % do not exceed."""

    middle: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return (
            cls(median(values), percentile(values, 0.1), percentile(values, 0.9))
            if values
            else cls(0.0, 0.0, 0.0)
        )

    def __str__(self) -> str:
        if round(self.low, 2) == round(self.high, 2):
            return f"{self.middle:.2f}"
        return f"{self.middle:.2f} [{self.low:.2f} to {self.high:.2f}]"


@dataclass(frozen=True)
class StateTally:
    """What became of one promise over the seeds."""

    states: Sequence[State]
    shown: Verdict
    """The first that is not held, else the first that applies, else the first."""

    @property
    def not_held(self) -> int:
        return sum(state in ("broken", "unknown") for state in self.states)

    @property
    def state(self) -> State:
        return self.shown.state

    @property
    def told(self) -> str:
        """With how many of the seeds it was held."""
        judged = [state for state in self.states if state != "not_applicable"]
        if not judged:
            return "applied to none"
        held = f"held in {judged.count('held')} of {len(judged)}"
        without = len(self.states) - len(judged)
        return f"{held}; did not apply to {without}" if without else held


def tally(verdicts: Sequence[Verdict]) -> StateTally:
    """Return how the verdicts of several seeds on one promise went."""
    ranks = {"broken": 0, "unknown": 1, "held": 2, "not_applicable": 3}
    worst = min(verdicts, key=lambda verdict: ranks[verdict.state])
    return StateTally([verdict.state for verdict in verdicts], worst)


@dataclass(frozen=True)
class Trained:
    """All seeds of a training."""

    part: TrainingPart
    runs: Sequence[TrainedRun]

    @cached_property
    def done(self) -> list[TrainedRun]:
        """The runs that were not broken off before their first step ended."""
        return [run for run in self.runs if run.steps and not run.error]

    @property
    def played(self) -> str:
        """How it was played, as a sentence."""
        why = self.runs[0].why_stack
        if why:
            return f"Played through the stack: {why}."
        return (
            "Played without the stack, which would draw the same: each call is lost by itself. "
            "`--stack` plays it through the stack."
        )

    def curve(self, figure: Figure) -> list[Spread]:
        """Return a figure over the steps that all seeds have."""
        steps = min((len(run.steps) for run in self.done), default=0)
        return [Spread.of([figure(run.steps[step]) for run in self.done]) for step in range(steps)]

    def last(self, figure: Figure) -> Spread:
        return Spread.of([figure(run.steps[-1]) for run in self.done])

    def total(self, figure: Figure) -> float:
        return sum(figure(step) for run in self.done for step in run.steps)

    @cached_property
    def call_share(self) -> float:
        """The share of calls that were lost."""
        calls = self.total(at("calls"))
        return self.total(at("lost_calls")) / calls if calls else 0.0

    @cached_property
    def lost_share(self) -> float:
        """The share of samples whose last call was lost."""
        samples = self.total(at("samples"))
        return self.total(at("lost")) / samples if samples else 0.0

    @cached_property
    def unseen_share(self) -> float:
        """The share of the lost samples that the trainer does not know of."""
        lost = self.total(at("lost"))
        return self.total(at("unseen")) / lost if lost else 0.0

    @property
    def hit_steps(self) -> list[tuple[int, int]]:
        """From which step to which calls were lost with half of the seeds; nothing if they were
        nearly all the time."""
        hit = [measured.middle > 0 for measured in self.curve(at("lost_calls"))]
        if not hit or sum(hit) > 0.8 * len(hit):
            return []
        found: list[tuple[int, int]] = []
        for place, struck in enumerate(hit):
            if struck and found and found[-1][1] == place - 1:
                found[-1] = found[-1][0], place
            elif struck:
                found.append((place, place))
        return found

    @property
    def promises(self) -> dict[str, StateTally]:
        """How each promise went over the seeds."""
        found: dict[str, list[Verdict]] = {}
        for run in self.runs:
            for verdict in run.verdicts:
                found.setdefault(verdict.promise, []).append(verdict)
        return {promise: tally(verdicts) for promise, verdicts in found.items()}

    def differences(self, *path: str) -> list[float]:
        """How much more a figure is at the end than the twin's, for each seed."""
        found = at(*path)
        twin = at("twin", *path)
        return [found(run.steps[-1]) - twin(run.steps[-1]) for run in self.done]

    def summary(self) -> dict[str, Any]:
        """The figures at the end; nothing if no training came so far."""
        if not self.done:
            return {}
        names = ("healthy", "tool", "several", "score")
        spreads = {name: vars(self.last(at(name))) for name in names}
        spreads |= {f"twin_{name}": vars(self.last(at("twin", name))) for name in names}
        shares = {
            "calls_lost": self.call_share,
            "samples_lost": self.lost_share,
            "lost_unseen": self.unseen_share,
        }
        return {**spreads, **{name: round(value, 6) for name, value in shares.items()}}

    @property
    def mean_score(self) -> float:
        count = sum(len(run.steps) for run in self.done)
        return self.total(at("score")) / count if count else 0.0


def seeds_of(task: Task, seeds: int) -> Iterator[Task]:
    """Yield a task for each seed, beginning with that of the scenario."""
    scenario = task.scenario
    for number in range(seeds):
        yield replace(
            task, scenario=scenario.changed(seed=scenario.seed + number) if number else scenario
        )


def play_training(task: Task) -> TrainedRun:
    """Play the training of one seed, through the stack where that adds something, and keep what
    it learned."""
    why = why_stack(task)
    if why:
        return play_through_stack(task, why)
    journal, verdicts = train_without_stack(task)
    return TrainedRun(seed=task.scenario.seed, steps=journal.events, verdicts=verdicts)


def play_through_stack(task: Task, why: str = "asked for") -> TrainedRun:
    """Play the training of one seed through the stack."""
    result = run_one(task)
    steps = [event for event in result.journal.events if event["event"] == "trained"]
    stops = [
        event["step"] for event in result.journal.events if event["event"] == "training_stopped"
    ]
    return TrainedRun(
        seed=task.scenario.seed,
        steps=steps,
        verdicts=result.verdicts,
        error=result.error,
        stopped=stops[0] if stops else None,
        why_stack=why,
    )


def dump_training(scenario: Scenario, folder: Path) -> int:
    """Play a training once more and write its samples as verl does; return how many."""
    dumps: dict[int, StepDump] = {}

    def add(request: AsyncRolloutRequest, score: float, step: int) -> None:
        prompt = int((request.group_id or "p0").rpartition("p")[2])
        place = prompt * 10_000 + request.rollout_offset  # by prompt, then by sibling
        dump = dumps.setdefault(step, StepDump(folder, step))
        dump.add(place, sample_record(request, score, step), request_record(request))

    sim.run(scenario, on_sample=add)
    return sum(len(dump.finish()[0]) for dump in dumps.values())


def check_played(runs: Iterable[TrainedRun]) -> None:
    """Raise the first error of a training that could not be played."""
    for run in runs:
        if run.error:
            raise HarnessError(run.error)
