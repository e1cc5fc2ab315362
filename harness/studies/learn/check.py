"""Plays the scenario that was learned from a log, and compares its run with the log."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sfusion_tools.record import Call

from ...core.run_events import RunEvents
from ...lab.runs.runner import run_one, run_scenario
from ...lab.runs.tasks import Task
from ...lab.scenarios import parse_scenarios
from ...lab.scenarios.reading import vary
from .attempts import SHORTEST
from .client_settings import DEFAULT_TIMEOUT
from .course import Course, compare_courses
from .knowledge import per_second_at_limit
from .learned import Figures, Learned, learn, log_figures, requests_of
from .why import reasons

RELATIVE = 0.25
"""By which share the rate and the number of attempts may differ; more below 64 calls."""
_DURATIONS = 0.15
"""By which share p50 and p95 may differ (chosen)."""
_COMPARED = 1000
"""Calls of the scenario that are compared with the log at least (chosen: twice the deviation of a
share of a tenth is then as small as the bound)."""
_MOST_RUNS = 10
"""Runs of a small scenario, at most (chosen: a second)."""
_UNAVOIDABLE = 0.01
"""Seconds of difference that do not count (chosen)."""
_RARE = 4
"""Calls below which a main cause may strike none in the next run (chosen)."""
_NEARLY = 0.7
"""The share of the main cause's weight from which on another one may be the main one in the next
run (chosen)."""
_FAR = 2
"""How many times its bound a figure must be off for the scenario to tell nothing of other settings
(chosen)."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure of the log and of the run of the learned scenario."""

    name: str
    log: str
    run: str
    difference: str
    bound: str
    agrees: bool
    is_far: bool
    """It is so much off that the scenario stands for something else than the log."""


def compare_figures(log: Figures, run: Figures) -> list[Comparison]:
    """Compare what the log shows with what the learned scenario does, each within its bound."""
    rows: list[Comparison] = []
    for outcome in dict.fromkeys((*log.outcomes, *run.outcomes)):
        a = 100 * log.share(outcome)
        b = 100 * run.share(outcome)
        points = run.points(outcome)
        differ = f"{b - a:+.1f} points"
        bound = f"{points:.3g} points"
        rows.append(
            Comparison(
                name=outcome,
                log=f"{a:.1f}%",
                run=f"{b:.1f}%",
                difference=differ,
                bound=bound,
                agrees=abs(b - a) <= points,
                is_far=abs(b - a) > _FAR * points,
            )
        )
    most = max(RELATIVE, 2 / math.sqrt(max(log.calls, 1)))
    if log.p95:
        rows.append(
            relative(
                name="p50 of a call",
                log=log.p50,
                run=run.p50,
                bound=_DURATIONS,
                unit=" s",
                slack=_UNAVOIDABLE,
            )
        )
        rows.append(
            relative(
                name="p95 of a call",
                log=log.p95,
                run=run.p95,
                bound=_DURATIONS,
                unit=" s",
                slack=_UNAVOIDABLE,
            )
        )
        rows.append(relative("calls per second", log.per_second, run.per_second, most))
    if log.attempts_per_call:
        rows.append(
            relative("attempts per call", log.attempts_per_call, run.attempts_per_call, most)
        )
    return rows


def relative(
    name: str, log: float, run: float, bound: float, unit: str = "", slack: float = 0.0
) -> Comparison:
    off = (run - log) / log if log else float(run != log)
    agrees = abs(off) <= bound or abs(run - log) <= slack
    return Comparison(
        name=name,
        log=f"{log:.3g}{unit}",
        run=f"{run:.3g}{unit}",
        difference=f"{off:+.0%}",
        bound=f"{bound:.0%}",
        agrees=agrees,
        is_far=not agrees and abs(off) > _FAR * bound,
    )


@dataclass(frozen=True, slots=True)
class Checked:
    """How well a learned scenario behaves like its log."""

    rows: tuple[Comparison, ...]
    again: Learned | None
    """What is learned from the run; None if it made no call."""
    same_cause: bool
    cause: str
    """The main cause of the run: that of the log if it is nearly as heavy there."""
    held: bool
    """Every promise of the scenario held."""
    broken: tuple[str, ...]
    reasons: tuple[str, ...] = ()
    """Why, for each figure that is out."""
    is_rare: bool = False
    """The main cause of the log struck so few calls that it may strike none in the run."""
    is_enough: bool = True
    """False: there are too few calls to judge."""

    @property
    def agrees(self) -> bool:
        return (
            self.is_enough
            and self.same_cause
            and self.held
            and all(row.agrees for row in self.rows)
        )

    @property
    def doubt(self) -> str:
        """Why the scenario tells nothing of other settings; empty if it may."""
        far = [row.name for row in self.rows if row.is_far]
        if not self.same_cause:
            far.append("main cause")
        if not far or not self.is_enough:
            return ""
        return f"the scenario does not behave like its log ({', '.join(far)})"


def check(learned: Learned, text: str) -> Checked:
    """Play the scenario that was learned; ``text`` is its YAML.

    A small one is played with several seeds, so that its figures are not those of one draw.
    """
    (result,) = run_scenario(text, check=False)
    calls = RunEvents(result.journal).records
    broken = tuple(
        f"{verdict.promise}: {verdict.sentence}"
        for verdict in result.verdicts
        if verdict.state in ("broken", "unknown")
    )
    if not calls:
        return Checked(
            rows=(),
            again=None,
            same_cause=False,
            cause="no call",
            held=result.ok,
            broken=broken,
            is_enough=learned.figures.is_enough,
        )
    again = learn(calls)
    rows = (
        *compare_figures(learned.figures, log_figures(calls, *_other_runs(text, len(calls)))),
        *_compare_times(learned.course, again.course),
        *_compare_limits(learned, text),
    )
    # A main cause that struck few calls may strike none the next time.
    is_rare = bool(learned.causes) and learned.causes[0].harm[1] * learned.figures.calls < _RARE
    is_named = _names(again, learned.headline)
    out = [row.name for row in rows if not row.agrees]
    if not is_rare and not is_named:
        out.append("main cause")
    timeout = learned.client.get("default_timeout", (DEFAULT_TIMEOUT, ""))[0]
    return Checked(
        rows=rows,
        reasons=tuple(reasons(out, learned.time_use, again.time_use, timeout)),
        again=again,
        same_cause=is_rare or is_named,
        cause=learned.headline if is_named else again.headline,
        held=result.ok,
        broken=broken,
        is_rare=is_rare,
        is_enough=learned.figures.is_enough,
    )


def _other_runs(text: str, calls: int) -> Iterator[Sequence[Call]]:
    """Play a scenario of few calls with other seeds, until they are enough to compare."""
    (cell,) = parse_scenarios(text)
    for number in range(1, min(math.ceil(_COMPARED / calls), _MOST_RUNS)):
        result = run_one(Task(cell.changed(seed=cell.seed + number), "sim"))
        yield RunEvents(result.journal).records


def _compare_times(log: Course, run: Course) -> Iterator[Comparison]:
    """Compare when calls and requests failed."""
    for found in compare_courses(log, run):
        half = "none" if found.run_half is None else f"half by {found.run_half:.3g} s"
        yield Comparison(
            name=f"times of {found.kind}",
            log=f"half by {found.log_half:.3g} s",
            run=half,
            difference=f"{found.points:.1f} points",
            bound=f"{found.bound:.0f} points",
            agrees=found.agrees,
            is_far=not found.agrees,
        )


def _compare_limits(learned: Learned, text: str) -> Iterator[Comparison]:
    """Play the scenario with each limit that the log shows: is throughput the same with each?"""
    (cell,) = parse_scenarios(text)
    rates = []
    for limit in learned.limits:
        result = run_one(Task(vary(cell, {"tools.rate_limit": limit.limit}), "sim"))
        rates.append(_rate(RunEvents(result.journal).records))
    # A scenario in which more in flight do more, and in the log less, cannot say which to set.
    logged = [limit.per_second for limit in learned.limits]
    is_other_order = _best(logged) != _best(rates)
    for limit, rate in zip(learned.limits, rates, strict=True):
        name = f"per second at rate_limit {limit.limit}"
        row = relative(name, limit.per_second, rate, RELATIVE)
        yield replace(row, is_far=row.is_far or (is_other_order and not row.agrees))


def _rate(calls: Sequence[Call]) -> float:
    """Return how many requests per second were answered at the limit; if nothing waited for it, of
    the whole run."""
    if not calls:
        return 0.0
    requests = requests_of(calls)
    answered = sum(request.ending == "answered" for request in requests)
    seconds = max(call.ended for call in calls) - calls[0].began
    return per_second_at_limit([requests]) or answered / max(seconds, SHORTEST)


def _best(rates: Sequence[float]) -> int | None:
    """Return the place of the highest rate; None without any."""
    return max(range(len(rates)), key=lambda place: rates[place], default=None)


def _names(learned: Learned, headline: str) -> bool:
    """True if a cause is the main one, or nearly."""
    if not learned.causes:
        return headline == learned.headline
    kind, most = learned.causes[0].harm
    return any(
        cause.kind == headline and cause.harm >= (kind, _NEARLY * most) for cause in learned.causes
    )
