"""Trainings side by side: GRPO on trajectories whose calls went through the stack."""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from random import Random
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from sfusion_tools.advantages import Estimator, Handled, Handling, handled

from .conditions import STARTS, Condition
from .decoder import Adam, Decoders, autocast
from .sampling import Rows, Trajectory, batch_of, begin, play, write
from .sizes import Size
from .stacks import Stacks
from .tasks import Kind, draw_problem
from .vocabulary import ANSWER, CALL

CLIP = 0.2
"""Of the ratio, as in PPO and verl's default."""
MINIBATCHES = 2
"""Updates of a step, so that the clip has something to do."""
LOOK_EVERY = 10
"""Steps between two measurements of the head's skill."""


@dataclass(frozen=True, slots=True)
class Skills:
    """What a model does and can, asked on a healthy sandbox."""

    score: float
    tool: float
    """Share of answers that used the tool."""
    several: float
    """Share of answers with more than one call."""
    head: float
    """Share of right answers if it must answer at once."""
    with_tool: float
    """Share of right answers if it must begin with a call."""
    one_call: float | None
    """Share of right answers among those with one call."""
    more_calls: float | None
    """Share of right answers among those with more."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one step of a training was."""

    score: float
    tool: float
    several: float
    lost: float
    """Share of samples whose last call was lost."""
    head_right: float | None
    """Share of right ones among samples without a call."""
    tool_right: float | None
    """Share of right ones among samples with calls, none of them lost."""


class Trainings:
    """Trains models of one kind of task, one for each condition."""

    def __init__(
        self,
        models: Decoders,
        size: Size,
        conditions: Sequence[Condition],
        stacks: Stacks,
        device: str,
    ) -> None:
        self.models = models
        self.size = size
        self.conditions = conditions
        self.stacks = stacks
        self.device = device
        self.kinds: list[Kind] = [STARTS[condition.start].kind for condition in conditions]
        self._generator = torch.Generator(device).manual_seed(conditions[0].seed * 1009 + 17)
        self._draws = [Random(f"problems {condition.seed}") for condition in conditions]
        rates = [condition.rate for condition in conditions]
        self._optimizer = Adam(models, torch.tensor(rates, device=device))
        self._kl = torch.tensor([condition.kl for condition in conditions], device=device)
        self._reference: Decoders | None = None
        if bool(self._kl.any()):
            self._reference = copy.deepcopy(models).requires_grad_(False)

    def run(self) -> list[dict[str, Any]]:
        """Train, and return of each the course and what the model is before and after."""
        before = self.ask()
        heads = [[skills.head for skills in before]]
        courses: list[list[Step]] = [[] for _ in self.conditions]
        for step in range(1, self.size.steps + 1):
            rows = self._sample(step)
            for course, mine in zip(courses, rows, strict=True):
                course.append(_told(mine))
            self._learn(rows)
            if step % LOOK_EVERY == 0:
                print(f"  step {step} of {self.size.steps}", file=sys.stderr, flush=True)
                heads.append(self.head_skills())
        after = self.ask()
        records: list[dict[str, Any]] = []
        for number, condition in enumerate(self.conditions):
            records.append(
                {
                    "name": condition.name,
                    "condition": condition.as_data(),
                    "before": asdict(before[number]),
                    "after": asdict(after[number]),
                    "head_every_10": [round(skills[number], 4) for skills in heads],
                    "steps": _columns(courses[number]),
                }
            )
        return records

    def _sample(self, step: int) -> Rows:
        rows: Rows = []
        for draw, kind in zip(self._draws, self.kinds, strict=True):
            problems = [draw_problem(kind, draw) for _ in range(self.size.prompts)]
            rows.append(begin(problems, self.size.group))
        self._play(rows, step, self._generator)
        return rows

    def _play(self, rows: Rows, step: int, generator: torch.Generator) -> None:
        play(
            self.models,
            self.size,
            rows,
            self.conditions,
            step=step,
            stacks=self.stacks,
            generator=generator,
            device=self.device,
        )

    def _learn(self, rows: Rows) -> None:
        """Update the models by one step's trajectories."""
        pairs = zip(rows, self.conditions, strict=True)
        found = [_advantages_of(mine, condition) for mine, condition in pairs]
        advantages = torch.tensor([each.advantages for each in found], device=self.device)
        in_loss = torch.tensor([each.in_loss for each in found], device=self.device)
        tokens, written = batch_of(rows, self.device)
        for number, condition in enumerate(self.conditions):
            if STARTS[condition.start].decision_only:
                written[number] = _first_of(written[number])
        with torch.no_grad():
            before = self._log_chances(self.models, tokens)
            reference = None
            if self._reference is not None:
                reference = self._log_chances(self._reference, tokens)

        order = torch.randperm(tokens.shape[1], generator=self._generator, device=self.device)
        for chosen in order.chunk(MINIBATCHES):
            now = self._log_chances(self.models, tokens[:, chosen])
            ratio = (now - before[:, chosen]).exp()
            advantage = advantages[:, chosen, None]
            clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
            loss = -torch.minimum(ratio * advantage, clipped * advantage)
            if reference is not None:
                away = reference[:, chosen] - now
                loss = loss + self._kl[:, None, None] * (away.exp() - away - 1)
            counts = written[:, chosen, 1:] & in_loss[:, chosen, None]
            ((loss * counts).sum() / len(chosen)).backward()
            self._optimizer.step()

    def _log_chances(self, models: Decoders, tokens: Tensor) -> Tensor:
        """Return the log-probability of each token but the first."""
        with autocast(self.device):
            logits = models(tokens[:, :, :-1])
        return logits.float().log_softmax(-1).gather(-1, tokens[:, :, 1:, None])[..., 0]

    def ask(self) -> list[Skills]:
        """Ask the models on a healthy sandbox: freely, with a call first, and at once."""
        generator = torch.Generator(self.device).manual_seed(4711)
        free = self._asked("asked", None)
        forced = self._asked("asked with a call", CALL)
        for rows in (free, forced):
            self._play(rows, 0, generator)
        heads = self.head_skills()
        return [
            _skills_of(mine, with_tool, head)
            for mine, with_tool, head in zip(free, forced, heads, strict=True)
        ]

    def head_skills(self) -> list[float]:
        """Return how often each model is right if it must answer at once."""
        generator = torch.Generator(self.device).manual_seed(4712)
        rows = self._asked("asked by head", ANSWER)
        going = [[True] * len(mine) for mine in rows]
        write(self.models, self.size, rows, going, generator, self.device)
        return [fmean(each.score for each in mine) for mine in rows]

    def _asked(self, what: str, first: str | None) -> Rows:
        rows: Rows = []
        for kind in self.kinds:
            draw = Random(what)
            problems = [draw_problem(kind, draw) for _ in range(self.size.asked)]
            rows.append(begin(problems, 1, first))
        return rows


def _advantages_of(trajectories: Sequence[Trajectory], condition: Condition) -> Handled:
    return handled(
        [each.score for each in trajectories],
        [each.group for each in trajectories],
        [each.lost for each in trajectories],
        Handling(condition.lost),
        Estimator.GRPO if condition.std else Estimator.DR_GRPO,
    )


def _first_of(written: Tensor) -> Tensor:
    """Keep the first token that the model wrote in each row."""
    return written & (written.cumsum(-1) == 1)


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _skills_of(free: list[Trajectory], with_tool: list[Trajectory], head: float) -> Skills:
    return Skills(
        score=fmean(each.score for each in free),
        tool=fmean(bool(each.replies) for each in free),
        several=fmean(len(each.replies) > 1 for each in free),
        head=head,
        with_tool=fmean(each.score for each in with_tool),
        one_call=_mean([each.score for each in free if len(each.replies) == 1]),
        more_calls=_mean([each.score for each in free if len(each.replies) > 1]),
    )


def _told(trajectories: list[Trajectory]) -> Step:
    healthy = [each.score for each in trajectories if each.replies and not each.lost]
    return Step(
        score=fmean(each.score for each in trajectories),
        tool=fmean(bool(each.replies) for each in trajectories),
        several=fmean(len(each.replies) > 1 for each in trajectories),
        lost=fmean(each.lost for each in trajectories),
        head_right=_mean([each.score for each in trajectories if not each.replies]),
        tool_right=_mean(healthy),
    )


def _columns(steps: Sequence[Step]) -> dict[str, list[float | None]]:
    """Return the course by figure: one list for each, in the order of the steps."""
    columns: dict[str, list[float | None]] = {}
    for key in ("score", "tool", "several", "lost", "head_right", "tool_right"):
        values = [getattr(step, key) for step in steps]
        columns[key] = [None if value is None else round(value, 3) for value in values]
    return columns
