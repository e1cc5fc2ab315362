"""Runs a learned scenario in virtual time, learns from that run, and compares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sfusion.harness.lab.figures import figures_of
from sfusion.harness.lab.promises.story import Story
from sfusion.harness.lab.runs.runner import run_one, run_scenario
from sfusion.harness.lab.runs.tasks import Task
from sfusion.harness.lab.scenarios import parse_scenarios
from sfusion.harness.lab.scenarios.reading import vary
from sfusion.harness.studies.learn.figures import RELATIVE, Comparison, compare, relative
from sfusion.harness.studies.learn.learned import Learned, learn
from sfusion_tools.outcome import PROGRAM_OUTCOMES

_RARE = 4
_NEARLY = 0.7
"""The share of the main cause's weight from which on another one may be the main one in the next run."""


@dataclass(frozen=True, slots=True)
class Checked:
    """How well a learned scenario behaves like its log."""

    rows: tuple[Comparison, ...]
    again: Learned | None
    """What is learned from the run; None if it made no call."""
    same_cause: bool
    held: bool
    """Every promise of the scenario held."""
    broken: tuple[str, ...]
    is_enough: bool = True
    """False: there are too few calls to judge."""

    @property
    def agrees(self) -> bool:
        return self.is_enough and self.same_cause and self.held and all(row.agrees for row in self.rows)


def check(learned: Learned, text: str) -> Checked:
    """Play the scenario that was learned; ``text`` is its YAML."""
    (result,) = run_scenario(text, check=False)
    calls = Story(result.journal).records
    broken = tuple(f"{one.promise}: {one.sentence}" for one in result.verdicts if one.state in ("broken", "unknown"))
    if not calls:
        return Checked((), None, False, result.ok, broken, learned.figures.is_enough)
    again = learn(calls)
    rows = (*compare(learned.figures, again.figures), *_compare_limits(learned, text))
    # A main cause that struck few calls may strike none the next time.
    is_rare = bool(learned.causes) and learned.causes[0].harm[1] * learned.figures.calls < _RARE
    same_cause = is_rare or _names(again, learned.headline)
    return Checked(rows, again, same_cause, result.ok, broken, learned.figures.is_enough)


def _compare_limits(learned: Learned, text: str) -> Iterator[Comparison]:
    """Play the scenario with each limit that the log shows: is throughput the same with each?"""
    (cell,) = parse_scenarios(text) if learned.limits else [None]
    for one in learned.limits:
        assert cell is not None
        result = run_one(Task(vary(cell, {"tools.rate_limit": one.limit}), "sim"))
        run = figures_of(result.journal)
        answered = sum(run.outcomes.get(outcome, 0) for outcome in PROGRAM_OUTCOMES)
        rate = answered / run.seconds if run.seconds else 0.0
        yield relative(f"per second at rate_limit {one.limit}", one.per_second, rate, RELATIVE)


def _names(learned: Learned, headline: str) -> bool:
    """True if a cause is the main one, or nearly."""
    if not learned.causes:
        return headline == learned.headline
    kind, most = learned.causes[0].harm
    return any(one.kind == headline and one.harm >= (kind, _NEARLY * most) for one in learned.causes)
