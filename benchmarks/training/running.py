"""Teaches the models that trainings begin with, then plays the trainings, many side by side."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from .conditions import STARTS, Condition, StartName
from .decoder import Decoders
from .learner import Trainings
from .sizes import Size, fitting
from .stacks import Stacks
from .tasks import Kind, Lessons
from .teaching import teach

T = TypeVar("T")
TOGETHER: tuple[tuple[Kind, ...], ...] = (("looks",), ("product", "secret"))
"""Kinds of tasks whose texts are equally long, so that their models can run side by side."""
Weights = dict[str, Tensor]
Taught = dict[tuple[Lessons, float | None, int], Weights]
"""The weights that trainings begin with, by lessons, where they end, and seed."""


def _batches(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for begin in range(0, len(values), size):
        yield values[begin : begin + size]


def device_here() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def describe_machine() -> dict[str, Any]:
    device = device_here()
    name = torch.cuda.get_device_name() if device == "cuda" else platform.machine()
    return {
        "device": device,
        "name": name,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _key(start: StartName, seed: int) -> tuple[Lessons, float | None, int]:
    """Starts with the same lessons share a model."""
    return STARTS[start].lessons, STARTS[start].head_enough, seed


def teach_all(conditions: Sequence[Condition], size: Size, stacks: Stacks) -> Taught:
    """Teach what the trainings begin with, each model once."""
    wanted: dict[tuple[Lessons, float | None, int], Condition] = {}
    for condition in conditions:
        wanted.setdefault(_key(condition.start, condition.seed), condition)
    taught: Taught = {}
    for kinds in TOGETHER:
        mine = [key for key in wanted if key[0].kind in kinds]
        for keys in _batches(mine, size.together):
            firsts = [wanted[key] for key in keys]
            taught.update(_teach(keys, firsts, fitting(size, kinds[0]), stacks))
    return taught


def _teach(
    keys: Sequence[tuple[Lessons, float | None, int]],
    conditions: Sequence[Condition],
    size: Size,
    stacks: Stacks,
) -> Taught:
    device = device_here()
    seeds = [key[2] for key in keys]
    models = Decoders(size, seeds).to(device)

    def head_skills(taught: Decoders) -> list[float]:
        return Trainings(taught, size, conditions, stacks, device).head_skills()

    teach(
        models,
        size,
        [key[0] for key in keys],
        seeds,
        [key[1] for key in keys],
        head_skills=head_skills,
        device=device,
    )
    weights = models.state_dict()
    found: Taught = {}
    for place, key in enumerate(keys):
        found[key] = {name: value[place].clone() for name, value in weights.items()}
    return found


def train_all(
    conditions: Sequence[Condition], taught: Taught, size: Size, stacks: Stacks
) -> Iterator[list[dict[str, Any]]]:
    """Play trainings, as many side by side as the size says, and yield each batch that ended."""
    device = device_here()
    for kinds in TOGETHER:
        mine = [each for each in conditions if STARTS[each.start].kind in kinds]
        fitted = fitting(size, kinds[0])
        for together in _batches(mine, size.together):
            models = Decoders(fitted, [0] * len(together))
            weights = [taught[_key(each.start, each.seed)] for each in together]
            names = list(weights[0])
            stacked = {name: torch.stack([each[name] for each in weights]) for name in names}
            models.load_state_dict(stacked)
            trainings = Trainings(models.to(device), fitted, together, stacks, device)
            yield trainings.run()
