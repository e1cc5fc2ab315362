"""What to play next, and what has been learned: a pure decider.

Cases come in batches of fixed size. Which cases a batch has depends on the seed and on the batches
before it, never on how many processes play them or how fast: the same seed finds the same,
anywhere.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..shrink import Failure
from .case import HuntCase, HuntResult
from .generate import generate, mutate

BATCH = 64
"""Cases that are decided together, whatever the number of processes (chosen)."""
_MUTATED = 0.4
_NEAR = 0.85
"""Share of cases that are mutated from the corpus, and from the scenarios of --near where there
are some (chosen)."""
_RECENT = 300
"""How many of the corpus are mutated: those that showed something new last (chosen)."""
_TRIES = 50
"""Draws before a case is played again that was played already (chosen)."""


@dataclass
class Found:
    """A finding, the first case that showed it, and how many did."""

    finding: Failure
    case: HuntCase
    count: int = 1


@dataclass
class Tally:
    """Counts over all cases."""

    cases: int = 0
    strikes: Counter[str] = field(default_factory=Counter)
    """In how many cases a fault struck, by kind and phase: ``status before``."""
    states: Counter[str] = field(default_factory=Counter)
    """In how many cases a promise was held, broken, unknown or not applicable: ``no_stall
    held``."""
    outcomes: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    growth: list[tuple[int, int]] = field(default_factory=list)
    """Cases and behaviours after each batch."""

    def add(self, result: HuntResult) -> None:
        self.cases += 1
        self.strikes.update(result.strikes)
        self.states.update(map(" ".join, result.states.items()))
        self.outcomes.update(result.outcomes)
        self.events.update(result.events)


class Hunt:
    def __init__(
        self, seed: int, *, keys: frozenset[str] | None = None, near: Sequence[HuntCase] = ()
    ) -> None:
        """``near`` are the first cases; most of the others are variations of them."""
        self.seed = seed
        self.tally = Tally()
        self.covered: set[str] = set()
        self.corpus: list[HuntCase] = []
        self.found: dict[Failure, Found] = {}
        self.seen: set[str] = set()
        self._keys = keys
        self._near = list(near)

    def decide(self, count: int = BATCH) -> list[HuntCase]:
        """Return the cases of the next batch, none of which was played before."""
        decided: list[HuntCase] = []
        seen = set(self.seen)
        for number in range(self.tally.cases, self.tally.cases + count):
            draw = random.Random(f"{self.seed}:{number}")
            for _ in range(_TRIES):
                case = self._draw(number, draw)
                if case.digest not in seen:
                    break
            seen.add(case.digest)
            decided.append(case)
        return decided

    def _draw(self, number: int, draw: random.Random) -> HuntCase:
        near = self._near
        if number < len(near) and near[number].digest not in self.seen:
            return near[number]
        if near and draw.random() < _NEAR:
            start = draw.choice(near)
            return HuntCase(number, mutate(start.data, draw, self._keys), "near")
        if self.corpus and draw.random() < _MUTATED:
            parent = draw.choice(self.corpus[-_RECENT:])
            return HuntCase(number, mutate(parent.data, draw, self._keys), "mutated")
        return HuntCase(number, generate(draw, self._keys))

    def fold(self, played: Iterable[tuple[HuntCase, HuntResult]]) -> list[Found]:
        """Learn from the results of a batch, in order; return what was found for the first time."""
        fresh: list[Found] = []
        for case, result in played:
            self.seen.add(case.digest)
            self.tally.add(result)
            for finding in result.findings:
                if self.add(finding, case):
                    fresh.append(self.found[finding])
            if not result.behaviour <= self.covered:
                self.covered |= result.behaviour
                self.corpus.append(case)
        self.tally.growth.append((self.tally.cases, len(self.covered)))
        return fresh

    def add(self, finding: Failure, case: HuntCase) -> bool:
        """Count a finding of a case; return whether it is the first of its kind."""
        if finding in self.found:
            self.found[finding].count += 1
            return False
        self.found[finding] = Found(finding, case)
        return True
