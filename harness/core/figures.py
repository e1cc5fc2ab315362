"""The figures of a run: throughput, how long calls took and waited, and which attempts were for
nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sfusion_tools.outcome import PROGRAM_OUTCOMES
from sfusion_tools.record import ANSWERED, Call

from .journal import Journal
from .run_events import RunEvents

REFUSALS = ("429", "503")
"""The reasons in ``RunFigures.failures`` that are refusals: the sandbox or its gateway turned the
request away."""


@dataclass(frozen=True, slots=True)
class RunFigures:
    """What a run achieved. Times are seconds on the clock of its world."""

    calls: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    """From the start of the first call to the end of the last one."""
    throughput: float = 0.0
    """Calls that ended ``ok`` per second, without the pauses between the steps of a training: they
    are the trainer's."""
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    """How long a call took, from the first wait to the result that the model reads."""
    wait_p50: float = 0.0
    wait_p95: float = 0.0
    """How long a call waited for permits."""
    attempts: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    """Attempts without a result of the program, by status (429, 503) or outcome."""
    lost_in_outages: int = 0
    """Calls that did not end ``ok`` and were under way in an outage that comes by the clock."""

    @property
    def refused(self) -> int:
        """Attempts that were turned away."""
        return sum(self.failures.get(reason, 0) for reason in REFUSALS)

    @property
    def wasted(self) -> int:
        """Attempts that gave no result of the program: refused, failed, timed out or cut off."""
        return sum(self.failures.values())

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"refused": self.refused, "wasted": self.wasted}


def figures_of(
    journal: Journal, *, pauses: float = 0.0, outages: Sequence[tuple[float, float]] = ()
) -> RunFigures:
    """Return the figures of a run with so many seconds of ``pauses`` between its steps, and with
    ``outages`` from one time to another."""
    calls = RunEvents(journal).records
    if not calls:
        return RunFigures()
    outcomes = Counter(call.kind for call in calls)
    seconds = max(call.ended for call in calls) - min(call.began for call in calls)
    working = seconds - pauses
    took = [call.seconds for call in calls if call.seconds is not None]
    waits = [sum(attempt.waited for attempt in call.attempts) + call.waited for call in calls]
    return RunFigures(
        calls=len(calls),
        outcomes=dict(sorted(outcomes.items())),
        seconds=round(seconds, 6),
        throughput=outcomes["ok"] / working if working > 0 else 0.0,
        p50=percentile(took, 0.5),
        p95=percentile(took, 0.95),
        p99=percentile(took, 0.99),
        wait_p50=percentile(waits, 0.5),
        wait_p95=percentile(waits, 0.95),
        attempts=sum(len(call.attempts) for call in calls),
        failures=dict(sorted(_failures(calls).items())),
        lost_in_outages=sum(call.kind != "ok" and _is_within(call, outages) for call in calls),
    )


def _is_within(call: Call, outages: Iterable[tuple[float, float]]) -> bool:
    """Was a call under way in one of the outages?"""
    return any(call.began < end and call.ended > start for start, end in outages)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that this share of the values does not exceed; 0 of none."""
    ordered = sorted(values)
    return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)], 6) if ordered else 0.0


def _failures(calls: Iterable[Call]) -> Counter[str]:
    """Count the attempts that got no result: refusals by status, others by how they ended."""
    found: Counter[str] = Counter()
    for call in calls:
        for attempt in call.attempts:
            if attempt.kind in PROGRAM_OUTCOMES or attempt.kind == ANSWERED:
                continue
            status = str(attempt.status)
            found[status if status in REFUSALS else attempt.kind] += 1
    return found
