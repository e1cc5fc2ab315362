"""Does a hunt find what is wrong with a tool? Each mistake of ``sfusion prove`` is hunted from scratch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from sfusion.harness.errors import BadOption
from sfusion.harness.hunt.case import play_case
from sfusion.harness.hunt.hunt import Hunt
from sfusion.harness.peers import proof  # registers the mistakes
from sfusion.harness.peers.good import DEFAULTS, GoodTool
from sfusion.harness.peers.mistake import MISTAKES
from sfusion.harness.peers.tool_config import tool_config
from sfusion.harness.runs.keyword import read_keyword

_KEYS = frozenset(DEFAULTS)


@dataclass(frozen=True)
class Prey:
    """A mistake to hunt; the right tool where ``mistake`` is empty, in which nothing may be found."""

    mistake: str
    seed: int
    cases: int
    """After how many cases to give up."""


@dataclass(frozen=True)
class Kill:
    """How a hunt for a mistake ended."""

    prey: Prey
    cases: int
    """The case that showed it, counted from 1; all of them if none did."""
    cpu_seconds: float
    promises: tuple[str, ...] = ()
    """What broke in that case; empty if nothing was found."""
    sentence: str = ""

    @property
    def found(self) -> bool:
        return bool(self.promises)

    @property
    def by(self) -> str:
        """Return the promise that names the mistake if it broke, else one that follows from it, else any."""
        mistake = MISTAKES.get(self.prey.mistake)
        wanted = [mistake.promise, *sorted(mistake.also)] if mistake is not None else []
        return next((name for name in wanted if name in self.promises), self.promises[0] if self.promises else "")


def hunt_mistake(prey: Prey) -> Kill:
    """Hunt one mistake until something breaks, in any process."""
    tool = MISTAKES[prey.mistake].tool if prey.mistake else GoodTool
    tools, hunt, began = tool_config(tool), Hunt(prey.seed, keys=_KEYS), time.process_time()
    played = 0
    while played < prey.cases:
        batch = hunt.decide()[: prey.cases - played]
        results = []
        for case in batch:
            result = play_case(case, tools)
            played += 1
            if result.findings:
                promises = tuple(one.failure.promise for one in result.findings)
                took = time.process_time() - began
                return Kill(prey, played, took, promises, result.findings[0].sentence)
            results.append((case, result))
        hunt.fold(results)
    return Kill(prey, played, time.process_time() - began)


def prey_of(keyword: str, seeds: int, cases: int) -> Iterator[Prey]:
    """Yield the hunts for every mistake that matches, seed by seed."""
    matches = read_keyword(keyword)
    names = [name for name in MISTAKES if matches(name)]
    if not names:
        raise BadOption(f"-k {keyword!r} matches no mistake; `sfusion prove --list` shows them")
    for name in names:
        for seed in range(seeds):
            yield Prey(name, seed, cases)


def row(kills: list[Kill]) -> tuple[str, ...]:
    """Return a line of the table: the hunts for one mistake."""
    found = [kill for kill in kills if kill.found]
    middle = median(kill.cases for kill in kills)
    by = ", ".join(dict.fromkeys(kill.by for kill in found))
    state = "found" if len(found) * 2 > len(kills) else "missed"
    missed = f"{len(kills) - len(found)} of {len(kills)} missed" if len(found) < len(kills) else ""
    cpu = f"{median(kill.cpu_seconds for kill in kills):.1f} s"
    return state, kills[0].prey.mistake, by, missed, f"{middle:g}", str(max(kill.cases for kill in kills)), cpu


HEAD = ("", "mistake", "broken", "", "cases (median)", "cases (most)", "CPU (median)")
__all__ = ["HEAD", "Kill", "Prey", "hunt_mistake", "prey_of", "proof", "row"]
