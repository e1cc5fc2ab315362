"""Finds when calls ended in another way than at other times, for reasons that no request shows: programs, cancels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sfusion.harness.studies.learn.attempts import INFRASTRUCTURE, outcome_of
from sfusion.harness.studies.learn.failures import bursts
from sfusion.harness.studies.look.record import LoggedCall
from sfusion_tools.wording import counted

_TIMES_DENSER = 1.5
_CLEAR = 15.0
DIFFERENT = 0.1
"""By how much of all calls a share must differ to be more than another batch of tasks."""


@dataclass(frozen=True, slots=True)
class Wave:
    """A time in which more calls ended in one way than otherwise."""

    outcome: str
    says: str
    evidence: str
    weight: float
    """The share of all calls that ended so because of it."""


def find_waves(calls: Sequence[LoggedCall]) -> tuple[Wave, ...]:
    """``calls`` are in the order in which they began."""
    if not all(call.timed for call in calls):
        return ()
    ended = [(call, outcome) for call in calls if (outcome := outcome_of(call)) is not None]
    # Failures of requests are looked for among the requests.
    told = {outcome for call, outcome in ended if outcome not in INFRASTRUCTURE or not call.attempts} - {"ok"}
    return tuple(wave for outcome in sorted(told) for wave in _waves(ended, outcome))


def _waves(ended: Sequence[tuple[LoggedCall, str]], outcome: str) -> Iterator[Wave]:
    flags = [one == outcome for _, one in ended]
    found = bursts(flags, _TIMES_DENSER, _CLEAR)
    outside = len(flags) - sum(last - first for first, last in found)
    usual = (sum(flags) - sum(sum(flags[first:last]) for first, last in found)) / max(outside, 1)
    for first, last in found:
        hit, count = sum(flags[first:last]), last - first
        if hit / count - usual < DIFFERENT:
            continue
        start = ended[0][0].began
        since, until = ended[first][0].began - start, ended[last - 1][0].began - start
        when = f"since {since:.4g} s" if last == len(flags) else f"from {since:.4g} s to {until:.4g} s"
        says = f"{hit / count:.0%} {outcome} instead of {usual:.0%} {when}"
        evidence = (
            f"{hit:,} of {counted(count, 'call')} in that time, {usual * outside:.0f} of {outside:,} otherwise; "
            "the scenario mixes them over its whole time"
        )
        yield Wave(outcome, says, evidence, (hit - usual * count) / len(flags))
