"""Teaching by demonstrations, before any training by reward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import torch
from torch import Tensor
from torch.nn import functional

from .decoder import Adam, Decoders, autocast
from .sizes import Size
from .tasks import Lessons
from .vocabulary import ID, PAD, encode

RATE = 1e-3
"""Of Adam; chosen by a pilot."""
WARMUP = 0.05
"""Share of the lessons in which the rate rises."""
CHECK_EVERY = 25
"""Steps between two looks at the head's skill."""
POOL = 20
"""Different batches of demonstrations; steps draw rows from all of them."""
IGNORED = -100
"""The label of a token that the model does not write, as torch has it."""

HeadSkills = Callable[[Decoders], Sequence[float]]


def demonstration(lessons: Lessons, draw: Random, length: int) -> tuple[list[int], list[int]]:
    """Return the tokens of one demonstration, and the labels of those that the model writes."""
    tokens: list[int] = []
    labels: list[int] = []
    for piece in lessons.draw(draw):
        found = encode(piece.text)
        tokens += found
        labels += found if piece.written else [IGNORED] * len(found)
    missing = length - len(tokens)
    return tokens + [ID[PAD]] * missing, labels + [IGNORED] * missing


def teach(
    models: Decoders,
    size: Size,
    lessons: Sequence[Lessons],
    seeds: Sequence[int],
    enough: Sequence[float | None],
    head_skills: HeadSkills,
    device: str,
) -> list[int]:
    """Teach each model, up to its ``enough`` of the head's skill; return the steps of each."""
    tokens, labels = _pools(lessons, seeds, size, device)
    generator = torch.Generator(device).manual_seed(seeds[0])
    rates = torch.full((len(seeds),), RATE, device=device)
    optimizer = Adam(models, rates)
    steps = [size.lessons] * len(seeds)
    going = torch.ones(len(seeds), device=device)
    each = torch.arange(len(seeds), device=device)[:, None]

    for step in range(size.lessons):
        rows = torch.randint(
            tokens.shape[1], (len(seeds), size.batch), generator=generator, device=device
        )
        with autocast(device):
            logits = models(tokens[each, rows, :-1])
        wanted = labels[each, rows, 1:]
        loss = functional.cross_entropy(
            logits.float().flatten(0, 2), wanted.flatten(), ignore_index=IGNORED
        )
        (loss * len(seeds)).backward()
        warm = min(1.0, (step + 1) / (WARMUP * size.lessons))
        optimizer.step(warm * going)
        if any(enough) and step % CHECK_EVERY == 0:
            _stop_those_that_can(head_skills(models), enough, steps, step, going)
    return steps


def _stop_those_that_can(
    skills: Sequence[float],
    enough: Sequence[float | None],
    steps: list[int],
    step: int,
    going: Tensor,
) -> None:
    for model, (skill, wanted) in enumerate(zip(skills, enough, strict=True)):
        if wanted is not None and going[model] and skill >= wanted:
            going[model] = 0.0
            steps[model] = step + 1


def _pools(
    lessons: Sequence[Lessons], seeds: Sequence[int], size: Size, device: str
) -> tuple[Tensor, Tensor]:
    """Return demonstrations of all models, no wider than the longest."""
    tokens: list[list[list[int]]] = []
    labels: list[list[list[int]]] = []
    for lesson, seed in zip(lessons, seeds, strict=True):
        draw = Random(f"lessons {seed}")
        shown = [demonstration(lesson, draw, size.length) for _ in range(size.batch * POOL)]
        tokens.append([pair[0] for pair in shown])
        labels.append([pair[1] for pair in shown])
    pool = torch.tensor(tokens)
    width = int((pool != ID[PAD]).sum(-1).max())
    return pool[..., :width].to(device), torch.tensor(labels)[..., :width].to(device)
