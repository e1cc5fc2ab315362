"""Which sandbox does worse than the others: in the whole log, or from a change of its own on. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sfusion.harness.logs.axis import SandboxSums, TimeBucket
from sfusion.harness.logs.changes import changed_durations, changed_shares
from sfusion.harness.logs.digest import OTHERS, SandboxCounts
from sfusion.harness.logs.histogram import Durations

_WORSE, _APART = 2.0, 0.05
"""A sandbox is named if it fails twice as often as the others, and 5 points more; or takes twice as long."""
_LEAST, _LEAST_TIMED = 5, 20
"""Attempts that it takes to judge failures, and durations."""


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
    named = sorted(sandboxes.keys() - {"", OTHERS}, key=lambda label: (-sandboxes[label].failed, label))
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
        changed_durations([(float(one.timed), one.logs, one.squares) for one in rows]),
    ):
        if changes:
            yield from pairwise([0, *(change.place for change in changes), len(rows)])


def _is_worse(counts: SandboxCounts, others: Sequence[SandboxCounts]) -> bool:
    times = Durations()
    for other in others:
        times.merge(other.seconds)
    attempts, failed = sum(other.attempts for other in others), sum(other.failed for other in others)
    mine, theirs = counts.seconds.percentile(0.5), times.percentile(0.5)
    return _stands_out((counts.attempts, counts.failed, mine), (attempts, failed, theirs))


def _was_worse(sums: SandboxSums, others: Iterable[SandboxSums]) -> bool:
    rest = SandboxSums()
    for other in others:
        rest.include(other)
    return _stands_out((sums.attempts, sums.failed, sums.typical), (rest.attempts, rest.failed, rest.typical))


def _stands_out(one: tuple[int, int, float | None], others: tuple[int, int, float | None]) -> bool:
    attempts, failed, mine = one
    if min(attempts, others[0]) < _LEAST:
        return False
    share, rest, theirs = failed / attempts, others[1] / others[0], others[2]
    if share > _WORSE * rest and share - rest > _APART:
        return True
    is_slow = bool(attempts >= _LEAST_TIMED and mine and theirs and mine > _WORSE * theirs)
    return is_slow and share >= rest / _WORSE
