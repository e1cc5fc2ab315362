"""How large the models are, and how much they are taught and trained."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .tasks import Kind


@dataclass(frozen=True, slots=True)
class Size:
    """How large a model is, and how much it is taught and trained."""

    layers: int
    width: int
    heads: int
    length: int
    """Tokens of the longest text."""
    lessons: int
    """Steps of teaching."""
    batch: int
    """Demonstrations of a step of teaching."""
    steps: int
    """Updates of a training."""
    prompts: int
    group: int
    asked: int
    """Questions that measure a skill."""
    together: int
    """Trainings side by side."""


SIZES = {
    "gpu": Size(
        layers=4,
        width=256,
        heads=4,
        length=28,
        lessons=1000,
        batch=512,
        steps=80,
        prompts=32,
        group=8,
        asked=512,
        together=32,
    ),
    "cpu": Size(
        layers=2,
        width=96,
        heads=4,
        length=28,
        lessons=800,
        batch=128,
        steps=40,
        prompts=12,
        group=8,
        asked=128,
        together=4,
    ),
}
LOOKS_LENGTH = 72
"""Tokens of four calls with their results; the longest other text has 24."""


def fitting(size: Size, kind: Kind) -> Size:
    """Return the size for a kind of task: texts with four calls are three times as long, so there
    are half as many of them."""
    if kind != "looks":
        return size
    return replace(size, length=LOOKS_LENGTH, prompts=size.prompts // 2, steps=size.steps * 5 // 8)
