"""Which trainings are played: first those without faults, then everything that is predicted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .conditions import Condition, Handling, StartName

USUAL = 6e-5
SLOW = 3e-5
"""Learning rates, chosen before the first training: as in earlier trainings of this kind."""
FAST = 3e-4
"""For the small size, which has fewer steps; chosen by a pilot."""
ALL: tuple[StartName, ...] = ("noisy", "decision", "natural", "needed", "several")


def baselines(seeds: Sequence[int]) -> Iterator[Condition]:
    """What the toy is told of: trainings without a lost call, and two starts without a tool.

    Without a tool (every call lost, scored 0) the model practises its head, which it hardly does
    where the tool always works.
    """
    for seed in seeds:
        for start in ALL:
            yield Condition(start, seed, rate=USUAL)
        for start in ("noisy", "natural"):
            yield Condition(start, seed, rate=SLOW)
            yield Condition(start, seed, rate=USUAL, share=1.0)
        yield Condition("noisy", seed, rate=USUAL, kl=KL)
        yield Condition("noisy", seed, rate=USUAL, std=False)


KL = 0.05
"""A usual coefficient."""
OUTAGE = (11, 20)
QUOTA = 96
"""Of 256 calls at most in a step."""


def held_out(seeds: Sequence[int]) -> Iterator[Condition]:
    """What is predicted before it is trained."""
    for seed in seeds:
        for start, lost, shares in GRID:
            for share in shares:
                yield Condition(start, seed, lost, share, rate=USUAL)
        for lost in ("zero", "mask", "exclude"):
            yield Condition("noisy", seed, lost, outage=OUTAGE, rate=USUAL)
        yield Condition("noisy", seed, quota=QUOTA, rate=USUAL)
        yield Condition("noisy", seed, share=0.4, attempts=4, rate=USUAL)
        yield Condition("noisy", seed, share=0.3, rate=SLOW)
        yield Condition("noisy", seed, share=0.3, rate=USUAL, kl=KL)
        yield Condition("noisy", seed, share=0.3, rate=USUAL, std=False)


def few_baselines(seeds: Sequence[int]) -> Iterator[Condition]:
    """What the few trainings of a processor are predicted from."""
    for seed in seeds:
        yield Condition("noisy", seed, rate=FAST)
        yield Condition("noisy", seed, rate=FAST, share=1.0)


def few_held_out(seeds: Sequence[int]) -> Iterator[Condition]:
    """On both sides of the edge of a model whose head learns little: scored 0 with 50 % and 85 %
    of calls lost; and left out with 85 %."""
    for seed in seeds:
        yield Condition("noisy", seed, share=0.5, rate=FAST)
        yield Condition("noisy", seed, share=0.85, rate=FAST)
        yield Condition("noisy", seed, "exclude", share=0.85, rate=FAST)


GRID: tuple[tuple[StartName, Handling, tuple[float, ...]], ...] = (
    ("noisy", "zero", (0.1, 0.2, 0.3, 0.5)),
    ("noisy", "mask", (0.3, 0.5, 0.7)),
    ("noisy", "exclude", (0.3, 0.7)),
    ("noisy", "drop", (0.3,)),
    ("decision", "zero", (0.3, 0.6)),
    ("natural", "zero", (0.3, 0.5, 0.7)),
    ("natural", "mask", (0.7,)),
    ("natural", "exclude", (0.7,)),
    ("needed", "zero", (0.5, 0.85)),
    ("needed", "exclude", (0.85,)),
    ("several", "zero", (0.05, 0.1, 0.2)),
    ("several", "mask", (0.2,)),
    ("several", "exclude", (0.2,)),
)
