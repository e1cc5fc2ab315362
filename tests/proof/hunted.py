"""Does a hunt find what is wrong with a tool? Each mistake of ``python -m tests.proof`` is hunted
from scratch.

A mistake counts as found where it breaks a promise that a right tool keeps in the same case; for a
change to our own stack, that is the stack without it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from statistics import median

from sfusion.harness.commandline.keyword import read_keyword
from sfusion.harness.errors import BadOption
from sfusion.harness.search.hunt.case import play_case
from sfusion.harness.search.hunt.hunt import Hunt
from tests.proof import proof
from tests.proof.changes import CHANGES
from tests.proof.mistakes import MISTAKES
from tests.reference_tool import DEFAULTS, GoodTool, tool_config

RIGHT, OWN = "(a right tool)", "(our own stack)"
"""In place of a mistake: tools in which nothing may be found."""


@dataclass(frozen=True)
class Prey:
    """A mistake or change to hunt, or a right tool."""

    mistake: str
    seed: int
    cases: int
    """After how many cases to give up."""

    @property
    def is_right(self) -> bool:
        return self.mistake in (RIGHT, OWN)

    @property
    def promises(self) -> list[str]:
        """Return the promise that names the mistake, and those that follow from it."""
        known = MISTAKES.get(self.mistake) or CHANGES.get(self.mistake)
        return [known.promise, *sorted(known.also)] if known is not None else []


@dataclass(frozen=True)
class Kill:
    """How a hunt for a mistake ended."""

    prey: Prey
    cases: int
    """The case that showed it, counted from 1; all of them if none did."""
    cpu_seconds: float
    promises: tuple[str, ...] = ()
    """What broke in that case, and not with a right tool; empty if nothing was found."""
    sentence: str = ""

    @property
    def found(self) -> bool:
        return bool(self.promises)

    @property
    def by(self) -> str:
        """Return the promise that names the mistake if it broke, else one that follows from it,
        else any."""
        wanted = [name for name in self.prey.promises if name in self.promises]
        return next(iter([*wanted, *self.promises]), "")


def hunt_mistake(prey: Prey) -> Kill:
    """Hunt one mistake until something breaks, in any process."""
    began, name = time.process_time(), prey.mistake
    is_own = name == OWN or name in CHANGES
    right = None if is_own else tool_config(GoodTool)
    tools = tool_config(MISTAKES[name].tool) if name in MISTAKES else right
    hunt, played = Hunt(prey.seed, keys=None if is_own else frozenset(DEFAULTS)), 0
    while played < prey.cases:
        results = []
        for case in hunt.decide()[: prey.cases - played]:
            with CHANGES[name].applied() if name in CHANGES else nullcontext():
                result = play_case(case, tools)
            played += 1
            found = {one.promise: one.sentence for one in result.findings}
            if found and not prey.is_right:
                for one in play_case(case, right).findings:
                    found.pop(one.promise, None)
            if found:
                return Kill(
                    prey,
                    played,
                    time.process_time() - began,
                    tuple(found),
                    next(iter(found.values())),
                )
            results.append((case, result))
        hunt.fold(results)
    return Kill(prey, played, time.process_time() - began)


def prey_of(keyword: str, seeds: int, cases: int) -> Iterator[Prey]:
    """Yield the hunts for every mistake and change that matches, seed by seed; after all of them,
    right tools."""
    matches = read_keyword(keyword)
    names = [name for name in (*MISTAKES, *CHANGES) if matches(name)]
    if not names:
        raise BadOption(
            f"-k {keyword!r} matches no mistake; `python -m tests.proof --list` shows them"
        )
    for name in names if keyword else [*names, RIGHT, OWN]:
        for seed in range(seeds):
            yield Prey(name, seed, cases)


def row(kills: list[Kill]) -> tuple[str, ...]:
    """Return a line of the table: the hunts for one mistake."""
    prey, found = kills[0].prey, [kill for kill in kills if kill.found]
    by = ", ".join(dict.fromkeys(kill.by for kill in found))
    if prey.is_right:
        state = "broken" if found else "held"
        remark = f"{len(found)} of {len(kills)} broken" if found else ""
    else:
        state = "found" if len(found) * 2 > len(kills) else "missed"
        remark = (
            f"{len(kills) - len(found)} of {len(kills)} missed" if len(found) < len(kills) else ""
        )
    cases = [kill.cases for kill in kills]
    cpu = f"{median(kill.cpu_seconds for kill in kills):.1f} s"
    return state, prey.mistake, by, remark, f"{median(cases):g}", str(max(cases)), cpu


HEAD = ("", "mistake", "broken", "", "cases (median)", "cases (most)", "CPU (median)")
__all__ = ["HEAD", "OWN", "RIGHT", "Kill", "Prey", "hunt_mistake", "prey_of", "proof", "row"]
