"""Which sandbox does worse than the others: in the whole log, or from a change of its own on. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from sfusion.harness.studies.look.axis import SandboxSums, TimeBucket
from sfusion.harness.studies.look.changes import changed_durations, changed_shares
from sfusion.harness.studies.look.digest import OTHERS, SandboxCounts

_WORSE, _APART = 2.0, 0.05
"""A sandbox is named if its odds of failing are twice those of the others, and it fails 5 points more often; or if its
answers take twice as long."""
_LESS = 0.01
"""One that fails this much less often than the others is not named, however slow it is."""
_DEVIATIONS = 2.0
"""Smaller differences of shares, in standard deviations, are chance."""
_LEAST, _LEAST_TIMED = 5, 20
"""Attempts that it takes to judge failures, and answers to judge durations."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A sandbox that does worse than the others; without a time from the beginning, or to the end of the log."""

    sandbox: str
    since: float | None = None
    until: float | None = None


def suspect(sandboxes: Mapping[str, SandboxCounts], fine: Sequence[tuple[float, float, TimeBucket]]) -> Suspect | None:
    """Return the sandbox that fails much more often than all others together, or is much slower; None if none is."""
    if len(sandboxes) < 2:
        return None
    # The worst first, where a few attempts are no proof.
    shares = {label: one.failed / (one.attempts + _LEAST_TIMED) for label, one in sandboxes.items()}
    named = sorted(sandboxes.keys() - {"", OTHERS}, key=lambda label: (-shares[label], label))
    for name in named:
        if _is_worse(sandboxes[name], [other for label, other in sandboxes.items() if label != name]):
            return Suspect(name)
    for name in named:
        rows = [bucket.sandboxes.get(name) or SandboxSums() for _, _, bucket in fine]
        for start, end in _spells(rows):
            sums: dict[str, SandboxSums] = {}
            for _, _, bucket in fine[start:end]:
                for label, part in bucket.sandboxes.items():
                    sums.setdefault(label, SandboxSums()).include(part)
            if _was_worse(sums.pop(name, SandboxSums()), sums.values()):
                since = fine[start][0] if start else None
                return Suspect(name, since, fine[end][0] if end < len(fine) else None)
    return None


def _spells(rows: Sequence[SandboxSums]) -> Iterator[tuple[int, int]]:
    """Yield the first and last stretch between changes of one sandbox, of its failures and then of its durations."""
    for changes in (
        changed_shares([(one.attempts, one.failed) for one in rows]),
        changed_durations([(float(one.answered), one.logs, one.squares) for one in rows]),
    ):
        if changes:
            yield from pairwise([0, *(change.place for change in changes), len(rows)])


def _is_worse(counts: SandboxCounts, others: Sequence[SandboxCounts]) -> bool:
    rest = SandboxCounts()
    for other in others:
        rest.outcomes.update(other.outcomes)
        rest.answers.merge(other.answers)
    return _stands_out(
        *(_Side(one.attempts, one.failed, one.answers.count, one.answers.percentile(0.5)) for one in (counts, rest))
    )


def _was_worse(sums: SandboxSums, others: Iterable[SandboxSums]) -> bool:
    rest = SandboxSums()
    for other in others:
        rest.include(other)
    return _stands_out(*(_Side(one.attempts, one.failed, one.answered, one.typical) for one in (sums, rest)))


class _Side(NamedTuple):
    attempts: int
    failed: int
    answered: int
    typical: float | None
    """Seconds of an answer."""


def _stands_out(one: _Side, others: _Side) -> bool:
    if min(one.attempts, others.attempts) < _LEAST:
        return False
    share, rest = one.failed / one.attempts, others.failed / others.attempts
    both = (one.failed + others.failed) / (one.attempts + others.attempts)
    chance = _DEVIATIONS * math.sqrt(both * (1 - both) * (1 / one.attempts + 1 / others.attempts))
    if share - rest > max(_APART, chance) and share * (1 - rest) > _WORSE * rest * (1 - share):
        return True
    if rest - share > max(_LESS, chance) or one.answered < _LEAST_TIMED or others.answered < _LEAST:
        return False
    return bool(one.typical and others.typical and one.typical > _WORSE * others.typical)
