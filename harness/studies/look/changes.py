"""When did it get worse, and at which sandbox? Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .axis import LogSums, SandboxSums, TimeBucket
from .digest import OTHERS, SandboxCounts

MOST_CHANGES = 4
"""Changes of one kind that are told (chosen)."""
_EVIDENCE = 25.0
"""How much better two shares must explain the counts than one, as a log-likelihood ratio: by chance
it is under 10."""
_LEAST_SHARE = 0.02
LEAST_RATIO = 1.3
"""Smaller changes, of a share or of a duration, are not worth a line (chosen)."""


@dataclass(frozen=True, slots=True)
class Shift:
    """The first stretch of time in which it is different, with the values before and after, up to
    the next changes."""

    place: int
    before: float
    after: float


Sums = tuple[float, float, float]
"""Of a stretch: the number of observations, their sum and the sum of their squares."""


def changed_shares(counts: Sequence[tuple[int, int]]) -> list[Shift]:
    """Find the changes of a share, given (number, how many of them) for each stretch of time."""
    found = _changes([(float(number), float(part), 0.0) for number, part in counts], _bernoulli)
    return [shift for shift in found if abs(shift.after - shift.before) >= _LEAST_SHARE]


def changed_durations(sums: Sequence[LogSums]) -> list[Shift]:
    """Find the changes of the typical duration, given the sums of the logarithms for each stretch
    of time."""
    found = _changes(
        [(float(moments.count), moments.logs, moments.squares) for moments in sums], _gauss
    )
    changes = [Shift(shift.place, math.exp(shift.before), math.exp(shift.after)) for shift in found]
    return [
        change
        for change in changes
        if not 1 / LEAST_RATIO < change.after / change.before < LEAST_RATIO
    ]


def _bernoulli(number: float, total: float, _: float) -> float:
    """Return the log-likelihood of the counts under the share that fits best."""
    if number <= 0 or total <= 0 or total >= number:
        return 0.0
    share = total / number
    return total * math.log(share) + (number - total) * math.log1p(-share)


def _gauss(number: float, total: float, squares: float) -> float:
    if number < 2:
        return 0.0
    spread = max(squares / number - (total / number) ** 2, 1e-4)
    return -number / 2 * math.log(spread)


def _changes(
    rows: Sequence[Sums], likelihood: Callable[[float, float, float], float]
) -> list[Shift]:
    """Split the rows again and again where that explains them best, while it does so by far."""
    sums: list[Sums] = [(0.0, 0.0, 0.0)]
    for row in rows:
        last = sums[-1]
        sums.append((last[0] + row[0], last[1] + row[1], last[2] + row[2]))

    def between(start: int, end: int) -> Sums:
        (a, b, c) = sums[start]
        (x, y, z) = sums[end]
        return x - a, y - b, z - c

    def best(start: int, end: int) -> tuple[float, int]:
        whole = likelihood(*between(start, end))
        gains = (
            (likelihood(*between(start, cut)) + likelihood(*between(cut, end)) - whole, cut)
            for cut in range(start + 1, end)
        )
        return max(gains, default=(0.0, start))

    edges = [0, len(rows)]
    while len(edges) - 2 < MOST_CHANGES:
        gain, cut = max(best(start, end) for start, end in pairwise(edges))
        if gain < _EVIDENCE:
            break
        edges = sorted({*edges, cut})
    changes = []
    for before, cut, after in zip(edges, edges[1:], edges[2:], strict=False):
        left = between(before, cut)
        right = between(cut, after)
        if left[0] and right[0]:
            changes.append(Shift(cut, left[1] / left[0], right[1] / right[0]))
    return _joined(changes)


def _joined(changes: list[Shift]) -> list[Shift]:
    """Take two changes in a row for one, if they are next to each other: it happened within a
    stretch."""
    found: list[Shift] = []
    for change in changes:
        last = found[-1] if found else None
        if (
            last is not None
            and change.place == last.place + 1
            and (last.after > last.before) == (change.after > change.before)
        ):
            found[-1] = Shift(last.place, last.before, change.after)
        else:
            found.append(change)
    return found


_WORSE = 2.0
_APART = 0.05
"""A sandbox is named if its odds of failing are twice those of the others, and it fails 5 points
more often; or if its answers take twice as long (chosen)."""
_LESS = 0.01
"""One that fails this much less often than the others is not named, however slow it is (chosen)."""
_DEVIATIONS = 2.0
"""Smaller differences of shares, in standard deviations, are chance (chosen)."""
_LEAST = 5
_LEAST_TIMED = 20
"""Attempts that it takes to judge failures, and answers to judge durations (chosen)."""


def suspect(
    sandboxes: Mapping[str, SandboxCounts], fine: Sequence[tuple[float, float, TimeBucket]]
) -> tuple[str, float | None, float | None]:
    """Return the sandbox that fails much more often than all others together, or is much slower; ""
    if none is.

    Also since when and until when, without a time from the beginning, or to the end of the log.
    """
    # The worst first, where a few attempts are no proof.
    whole = {label: sandbox.sums for label, sandbox in sandboxes.items()}
    shares = {
        label: counts.failed / (counts.attempts + _LEAST_TIMED) for label, counts in whole.items()
    }
    named = sorted(sandboxes.keys() - {"", OTHERS}, key=lambda label: (-shares[label], label))
    for name in named:
        if _is_worse(name, whole):
            return name, None, None
    for name in named:
        rows = [bucket.sandboxes.get(name) or SandboxSums() for _, _, bucket in fine]
        for start, end in _spells(rows):
            sums: dict[str, SandboxSums] = {}
            for _, _, bucket in fine[start:end]:
                for label, part in bucket.sandboxes.items():
                    sums.setdefault(label, SandboxSums()).include(part)
            if name in sums and _is_worse(name, sums):
                since = fine[start][0] if start else None
                return name, since, fine[end][0] if end < len(fine) else None
    return "", None, None


def _spells(rows: Sequence[SandboxSums]) -> Iterator[tuple[int, int]]:
    """Yield the first and last stretch between changes of one sandbox, of its failures and then of
    its durations."""
    for changes in (
        changed_shares([(row.attempts, row.failed) for row in rows]),
        changed_durations([row.answers for row in rows]),
    ):
        if changes:
            yield from pairwise([0, *(change.place for change in changes), len(rows)])


def _is_worse(name: str, sums: Mapping[str, SandboxSums]) -> bool:
    one = sums[name]
    others = SandboxSums()
    for label, other in sums.items():
        if label != name:
            others.include(other)
    if min(one.attempts, others.attempts) < _LEAST:
        return False
    share = one.failed / one.attempts
    rest = others.failed / others.attempts
    both = (one.failed + others.failed) / (one.attempts + others.attempts)
    chance = _DEVIATIONS * math.sqrt(both * (1 - both) * (1 / one.attempts + 1 / others.attempts))
    if share - rest > max(_APART, chance) and share * (1 - rest) > _WORSE * rest * (1 - share):
        return True
    if (
        rest - share > max(_LESS, chance)
        or one.answers.count < _LEAST_TIMED
        or others.answers.count < _LEAST
    ):
        return False
    typical, usual = (math.exp(sums.logs / sums.count) for sums in (one.answers, others.answers))
    return typical > _WORSE * usual
