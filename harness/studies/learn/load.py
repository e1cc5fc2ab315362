"""What the clients did: how calls arrived, and what their programs do."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from sfusion_tools.outcome import PROGRAM_OUTCOMES
from sfusion_tools.record import Call
from sfusion_tools.wording import counted

from .attempts import InFlight, known_of, outcome_of, seconds_of
from .distributions import Fit, fit, rounded
from .sandbox_fit import ENDED_EARLY, SandboxFit

_STEADY = 0.75
"""The share of the most calls under way that are under way on average if callers never pause
(chosen)."""
_PARTS = 20
"""Parts of the log whose calls are counted (chosen)."""
_FEWER_COME = -0.7
"""The correlation of load and arrivals below which calls wait for others to end (chosen)."""
_VISIBLE = 0.03
"""How uneven calls must be expected to be, as a share of all, for evenness to say anything
(chosen)."""
_MOST_CALLERS = 100_000
"""Callers of a scenario, at most (chosen)."""
_ASSUMED = 16
"""Callers where a log has no times (chosen)."""
_UNNOTICED = 0.0005
"""Seconds of a pause that nobody would notice (chosen)."""
_PLATEAU = 0.03
"""The share of the time with all callers under way that shows that there are no more of them
(chosen)."""
_SHORTEST = 1e-9
"""Seconds that a log lasts at least, so that a rate can be told (chosen)."""
_AGAIN = 8
"""How often the most calls must be under way again to be all callers (chosen)."""
_LESS_THAN_CHANCE = 0.6
"""The variance of calls under way, by their mean, below which their number has a bound (chosen)."""
_PAUSE = 0.05
"""The share of the time of a call from which on a pause counts: one of all callers separates
steps, one of a caller is drawn (chosen)."""
_MOST_UNSEEN = 1.5
"""How many times as many callers there may be as were ever under way at once (chosen)."""


@dataclass(frozen=True, slots=True)
class LoadFit:
    """The keys of ``load`` that say when calls come."""

    kind: str
    """closed, open or steps."""
    concurrency: int
    says: str
    evidence: str
    think: Any = None
    steps: int = 1
    step_pause: float = 0.0


def find_load(calls: Sequence[Call], start: float, end: float) -> LoadFit:
    """``calls`` are in the order in which they began."""
    known = known_of(calls)
    if known == "order":
        callers = min(_ASSUMED, len(calls))
        says = counted(callers, "caller")
        return LoadFit("closed", callers, says, "assumed, the log has no times")
    starts = [call.began - start for call in calls]
    if known == "times":
        return _open(starts, "the log does not say how many were under way")
    spans = [_span(call, end) for call in calls]
    outstanding = InFlight(spans)
    peak = max(1, outstanding.peak)
    if end <= start or len(calls) < 3:
        return LoadFit("closed", peak, counted(peak, "caller"), "the log is too short to say more")
    steps = _steps(spans, outstanding)
    if steps is not None:
        return steps
    middle = _middle(calls, outstanding, start)
    lasting = max(1, outstanding.lasting_peak())
    if middle.mean >= _STEADY * lasting:
        return _closed(lasting, middle, spans, peak)
    callers = _callers(
        begins=[call.began for call in calls],
        outstanding=outstanding,
        mean=middle.mean,
        low=middle.low,
        high=middle.high,
    )
    is_bounded = _is_bounded(outstanding, middle.mean, middle.low, middle.high)
    if not is_bounded and _is_open(calls, outstanding, callers):
        return _open(starts, f"calls came evenly, whether few or up to {peak} were under way")
    return _closed(callers, middle, spans, peak)


def _span(call: Call, end: float) -> tuple[float, float]:
    """Return from when to when a call was under way: without an end, until that of the log."""
    took = seconds_of(call)
    return call.began, end if took is None else call.began + took


class _Middle(NamedTuple):
    """The log without its first and last tenth of calls.

    Beginning and end are unlike the rest: callers start together, and the last ones are alone.
    """

    low: float
    high: float
    mean: float
    """Calls under way."""
    rate: float
    """Calls per second."""


def _middle(calls: Sequence[Call], outstanding: InFlight, start: float) -> _Middle:
    tenth = len(calls) // 10
    low = calls[tenth].began
    high = calls[-1 - tenth].began
    if high > low:
        rate = (len(calls) - 2 * tenth - 1) / (high - low)
        return _Middle(low, high, outstanding.mean(low, high), rate)
    took = calls[-1].began - start
    peak = max(1, outstanding.peak)
    return _Middle(low, high, float(peak), len(calls) / max(took, _SHORTEST))


def _closed(
    callers: int, middle: _Middle, spans: Sequence[tuple[float, float]], peak: int
) -> LoadFit:
    """Return the load of callers that each make one call after the other."""
    pause = max(0.0, (callers - middle.mean) / middle.rate)
    took = statistics.fmean(ended - began for began, ended in spans)
    think: Any = None
    if pause > max(_UNNOTICED, _PAUSE * took):
        think = {"exponential": rounded(pause)}
    elif pause > _UNNOTICED:
        think = rounded(pause)
    return LoadFit(
        kind="closed",
        concurrency=callers,
        says=f"{counted(callers, 'caller')}, each making one call after the other",
        evidence=(
            f"at most {counted(peak, 'call')} under way, {middle.mean:.3g} on average, "
            f"{middle.rate:.3g} per second"
        ),
        think=think,
    )


def _open(starts: Sequence[float], evidence: str) -> LoadFit:
    rate = len(starts) / max(starts[-1], _UNNOTICED)
    says = f"{rate:.3g} calls per second, whatever becomes of them"
    think = {"uniform": [0, rounded(starts[-1])]}
    return LoadFit(
        kind="open",
        concurrency=min(len(starts), _MOST_CALLERS),
        says=says,
        evidence=evidence,
        think=think,
    )


def _callers(
    begins: Sequence[float], outstanding: InFlight, mean: float, low: float, high: float
) -> int:
    """How many callers there are if some of them always pause.

    Where all were under way for a while, they are counted. Where calls came the less often the more
    were under way, a line through both shows with how many none would come any more. Else, callers
    that come and go by themselves are under way by a binomial law, whose variance is below its
    mean; the nearer the two, the more callers there are.
    """
    peak = max(1, outstanding.peak)
    whole = outstanding.times[-1] - outstanding.times[0]
    if outstanding.time_from(0.95 * peak) > _PLATEAU * whole:
        return peak
    parts = [low + (high - low) * k / _PARTS for k in range(_PARTS + 1)]
    loads = [outstanding.mean(a, b) for a, b in pairwise(parts)]
    rates = [
        (bisect_left(begins, b) - bisect_left(begins, a)) / (high - low) for a, b in pairwise(parts)
    ]
    if (
        max(loads) > min(loads)
        and max(rates) > min(rates)
        and statistics.correlation(loads, rates) < _FEWER_COME
    ):
        slope, most = statistics.linear_regression(loads, rates)  # whose unit does not matter
        return max(peak, min(round(-most / slope), 2 * peak))
    variance = max(0.0, outstanding.mean_square(low, high) - mean**2)
    if variance >= mean * (1 - mean / (_MOST_UNSEEN * peak)):
        return round(_MOST_UNSEEN * peak)
    return max(peak, round(mean**2 / (mean - variance)))


def _is_bounded(outstanding: InFlight, mean: float, low: float, high: float) -> bool:
    """Do calls vary less than those that come by themselves, or reach the same number again and
    again?"""
    peak = outstanding.peak
    whole = outstanding.times[-1] - outstanding.times[0]
    if high > low and outstanding.mean_square(low, high) - mean**2 < _LESS_THAN_CHANCE * mean:
        return True
    again = sum(count == peak for count in outstanding.counts)
    return again >= _AGAIN and outstanding.time_from(peak) > _PLATEAU * whole


def _is_open(calls: Sequence[Call], outstanding: InFlight, callers: int) -> bool:
    """Do calls come evenly although callers that wait for each call would have come less often at
    times?"""
    first = calls[0].began
    last = calls[-1].began
    size = len(calls)
    if last <= first or size < 2 * _PARTS:
        return False
    uneven = max(
        abs((call.began - first) / (last - first) - (place + 0.5) / size)
        for place, call in enumerate(calls)
    )
    parts = [first + (last - first) * k / _PARTS for k in range(_PARTS + 1)]
    free = [max(0.0, callers - outstanding.mean(a, b)) for a, b in pairwise(parts)]
    expected = accumulate(seconds / max(sum(free), 1e-9) for seconds in free)
    would_be = max(abs(share - (k + 1) / _PARTS) for k, share in enumerate(expected))
    return would_be > max(1.5 * uneven, _VISIBLE)


def _steps(spans: Sequence[tuple[float, float]], outstanding: InFlight) -> LoadFit | None:
    """Batches of about the same size, each of which begins after the one before has ended."""
    sizes = [1]
    pauses = []
    latest = spans[0][1]
    typical = statistics.median(ended - began for began, ended in spans)
    for began, ended in spans[1:]:
        if began > latest + max(0.1, _PAUSE * typical):
            pauses.append(began - latest)
            sizes.append(0)
        sizes[-1] += 1
        latest = max(latest, ended)
    if not 1 <= len(pauses) <= 1000 or min(sizes) < 4:
        return None
    whole = sizes[:-1] if len(sizes) > 2 else sizes  # a log may end within a step
    if max(whole) > 1.3 * min(whole):
        return None
    peak = max(1, outstanding.peak)
    return LoadFit(
        "steps",
        peak,
        (
            f"{len(sizes)} steps of about {round(statistics.median(whole))} calls, "
            f"{counted(peak, 'caller')}"
        ),
        (
            f"all calls of a step end before the next begins; pauses of {min(pauses):.3g} to "
            f"{max(pauses):.3g} s"
        ),
        steps=len(sizes),
        step_pause=rounded(statistics.median(pauses)),
    )


_ENOUGH = 20
"""Programs with one outcome from which on they have a law of their own (chosen)."""


@dataclass(frozen=True, slots=True)
class ProgramFit:
    """Programs that end alike."""

    outcome: str
    calls: int
    of: int
    seconds: Fit | None
    """None if the log does not say, or if programs took longer than any timeout."""
    keys: dict[str, Any]
    why: str
    share: int
    """How many calls would end like this if nothing else went wrong."""


_PROGRAM_KEYS: dict[str, dict[str, Any]] = {
    "ok": {},
    "program_error": {"exit": 1, "errors": "Traceback (most recent call last): ..."},
    "compile_error": {
        "language": "cpp",
        "compile_exit": 1,
        "compile_errors": "error: expected ';'",
    },
    "program_timeout": {},
}


_MOST_PROBLEMS = 3
"""Kinds of malformed calls that a scenario repeats (chosen); the others are counted with them."""


def find_programs(
    calls: Sequence[Call], sandboxes: Sequence[SandboxFit], timeout: float = math.inf
) -> tuple[ProgramFit, ...]:
    """Return what programs a load needs to end as these calls did; those that came to their end did
    not run into the ``timeout``."""
    outcomes = Counter(
        outcome for call in calls if (outcome := outcome_of(call)) in PROGRAM_OUTCOMES
    )
    # Programs that were stopped for want of a core are longer than others, not endless.
    longer = sum(len(sandbox.slowness.longer_programs) for sandbox in sandboxes)
    stretched = min(longer, outcomes["program_timeout"])
    if stretched:
        outcomes.update({"ok": stretched, "program_timeout": -stretched})
    outcomes += Counter()  # without those that are zero
    malformed = Counter(_problem(call) for call in calls if outcome_of(call) == "bad_arguments")
    known = sum(outcome_of(call) is not None for call in calls)
    times = _ProgramTimes.of(sandboxes, timeout)

    if not outcomes and not malformed:
        nothing = ProgramFit(
            outcome="ok",
            calls=0,
            of=0,
            seconds=times.usual,
            keys={},
            why="no call got the result of its program; assumed: programs that take no time",
            share=1,
        )
        return (nothing,)
    return (
        *_ended_programs(outcomes, known - malformed.total(), known, stretched, times),
        *_malformed_programs(malformed, known),
    )


@dataclass(frozen=True, slots=True)
class _ProgramTimes:
    """How long programs ran, without what slowed them down."""

    base: Sequence[tuple[str | None, float]]
    """Outcome and seconds of each."""
    usual: Fit | None
    """Of all that came to their own end; None if there are none."""
    timeout: float

    @classmethod
    def of(cls, sandboxes: Sequence[SandboxFit], timeout: float) -> _ProgramTimes:
        base: list[tuple[str | None, float]] = []
        for sandbox in sandboxes:
            if sandbox.slower is None:
                base += sandbox.base
        ended = [seconds for outcome, seconds in base if outcome not in ENDED_EARLY]
        return cls(base, fit(ended, timeout) if ended else None, timeout)

    def fit(self, outcome: str) -> Fit | None:
        """Return the law of programs that end like this; the usual one where they are few."""
        own = [seconds for ended, seconds in self.base if ended == outcome]
        is_alone = outcome in ENDED_EARLY or len(own) >= _ENOUGH or self.usual is None
        return fit(own, self.timeout) if own and is_alone else self.usual


def _ended_programs(
    outcomes: Counter[str], usable: int, known: int, stretched: int, times: _ProgramTimes
) -> Iterator[ProgramFit]:
    """Yield the programs by how they ended; ``usable`` calls had arguments that can be used."""
    for outcome, count in outcomes.most_common():
        why = f"{count:,} of {counted(known, 'call')} ended {outcome}"
        if outcome == "ok" and stretched:
            why += f" or would have if the cores had not been shared ({stretched:,})"
        seconds = None
        if outcome == "program_timeout":
            why += "; longer than any timeout"
        else:
            seconds = times.fit(outcome)
            unknown = "not in the log, so programs are assumed to take no time"
            why += f"; seconds: {unknown if seconds is None else seconds}"
        # Calls that failed otherwise would have ended like those that got their results.
        share = count * (usable / outcomes.total())
        yield ProgramFit(
            outcome=outcome,
            calls=count,
            of=known,
            seconds=seconds,
            keys=dict(_PROGRAM_KEYS[outcome]),
            why=why,
            share=round(share),
        )


def _malformed_programs(malformed: Counter[str], known: int) -> Iterator[ProgramFit]:
    """Yield the calls whose arguments cannot be used, by what was wrong with them."""
    commonest = malformed.most_common(_MOST_PROBLEMS)
    shown = sum(count for _, count in commonest)
    for problem, count in commonest:
        yield ProgramFit(
            outcome="bad_arguments",
            calls=count,
            of=known,
            seconds=None,
            keys={"arguments": {"malformed": problem}},
            why=(
                f"{count:,} of {counted(known, 'call')} had arguments that cannot be used: "
                f"{problem}"
            ),
            share=round(count * malformed.total() / shown),
        )


def _problem(call: Call) -> str:
    text = " ".join((call.problem or "").split())
    return (
        "".join(letter for letter in text if letter.isprintable())[:80]
        or "the log does not say why"
    )
