"""A benchmark: contestants that take turns, round after round."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from benchmarks.figures import OURS, BenchResult, Goal
from benchmarks.ground import Ground

Round = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Contest:
    """Contestants that are ready to be measured."""

    measure: Callable[[int], Mapping[str, float]]
    """Measures one round, by its number, and returns the figure of each contestant."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Baselines that cannot be measured here, or not any more, with the reason."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    name: str
    about: str
    unit: str
    goals: Sequence[Goal]
    open: Callable[[Ground], AbstractContextManager[Contest]]
    warm_up: bool = True
    rounds: int | None = None
    """At most this many rounds, for a benchmark whose rounds take long."""

    def run(
        self, ground: Ground, rounds: int, round_ended: Callable[[int], None] = lambda _: None
    ) -> BenchResult:
        """Measure all contestants in every round."""
        samples: dict[str, list[float]] = {}
        with self.open(ground) as contest:
            if self.warm_up:
                contest.measure(0)
            for number in range(1, self.rounds_of(rounds) + 1):
                for name, figure in contest.measure(number).items():
                    samples.setdefault(name, []).append(figure)
                round_ended(number)
        whole = {name: figures for name, figures in samples.items() if name not in contest.missing}
        return BenchResult(
            name=self.name,
            about=self.about,
            unit=self.unit,
            samples=whole,
            goals=self.goals,
            missing=contest.missing,
        )

    def rounds_of(self, wanted: int) -> int:
        return wanted if self.rounds is None else min(self.rounds, wanted)


def in_turn(contestants: Mapping[str, Round], missing: Mapping[str, str] | None = None) -> Contest:
    """Measure one after the other; every second round in reverse order. A baseline that fails is
    missing from then."""
    lost = dict(missing or {})

    def measure(number: int) -> Mapping[str, float]:
        found = {}
        for name in list(contestants)[:: 1 if number % 2 else -1]:
            if name in lost:
                continue
            try:
                found[name] = contestants[name]()
            except Exception as error:
                if name == OURS:
                    raise
                why = str(error).strip().partition("\n")[0]
                lost[name] = f"failed in round {number}: {why or type(error).__name__}"
        return {name: found[name] for name in contestants if name in found}

    return Contest(measure, lost)


async def repeat(call: Callable[[], Awaitable[object]], callers: int, calls: int) -> float:
    """Make calls from so many concurrent callers; return the seconds that all of them took."""
    left = iter(range(calls))

    async def caller() -> None:
        for _ in left:
            await call()

    began = time.perf_counter()
    tasks = [asyncio.ensure_future(caller()) for _ in range(callers)]
    try:
        await asyncio.gather(*tasks)
    finally:  # the others of one that failed must not run during the next contestant's turn
        for task in tasks:
            task.cancel()
    return time.perf_counter() - began


def machine() -> str:
    """Describe the machine and what else it is doing, in one line."""
    import platform

    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return (
        f"{os.cpu_count()} CPUs{load}, Python {platform.python_version()}, "
        f"{platform.system()} {platform.machine()}"
    )
