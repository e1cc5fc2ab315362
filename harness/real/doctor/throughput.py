"""Throughput at rising concurrency, and the rate_limit that follows from it."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, median, quantiles

from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox.answer import read_answer
from sfusion_tools.sandbox.program import Program
from sfusion_tools.sandbox.retry import retry_after

from ...errors import NotExamined
from .context import CheckContext, Finding, breaks, hurts, marked, note
from .http import HttpAnswer, NoAnswer
from .knee import COLLAPSED, Knee, Point, find_knee, fit_model
from .settings import Client, Plan

ROUNDS = 2
"""Programs that each concurrent worker sends, one after the other (chosen)."""
GAIN = 1.15
"""A level must beat the best one so far by this factor; after two levels in a row that do not,
the sweep ends (chosen)."""
MOST_SWEEPS = 4
"""A sweep is repeated until the recommendation is stable, but not more often (chosen)."""
STABLE = 0.2
"""Recommendations that differ by less than this share, or by 1, count as the same (chosen)."""
_THROTTLED = (429, 503)
MARGIN = 10.0
"""Seconds beyond a program's own time limit after which clients give up."""


@dataclass(slots=True)
class Sweep:
    """The measurements of all levels, and the first level that was throttled."""

    points: list[Point] = field(default_factory=list)
    throttled_at: int | None = None
    statuses: set[int] = field(default_factory=set)
    retry_after: float | None = None
    is_mix: bool = False
    """The programs are the user's: any end of their own is one, and they differ in length."""
    alone: list[float] = field(default_factory=list)
    """Seconds of each program that ran alone."""

    def add(self, level: int, answers: Sequence[HttpAnswer | NoAnswer], seconds: float) -> Point:
        """Add the answers to all programs of a level, which took this long."""
        came = [answer for answer in answers if isinstance(answer, HttpAnswer)]
        refused = [answer for answer in came if answer.status in _THROTTLED]
        readings = [
            (answer.seconds, read_answer(answer.status, answer.content_type, answer.body))
            for answer in came
        ]
        ran = [took for took, reading in readings if self._has_run(reading.outcome)]
        if level == 1:
            self.alone += ran
        if refused and self.throttled_at is None:
            self.throttled_at = level
            asked = (retry_after(answer.headers, time.time()) for answer in refused)
            self.retry_after = next((seconds for seconds in asked if seconds is not None), None)
        self.statuses |= {answer.status for answer in refused}
        failed = len(answers) - len(ran) - len(refused)
        # Little's law, which the knee and the model use, is about the mean.
        middle = fmean if self.is_mix else median
        latency = middle(ran) if ran else 0.0
        point = Point(
            concurrency=level,
            throughput=len(ran) / max(seconds, 1e-6),
            latency=latency,
            requests=len(answers),
            throttled=len(refused),
            failed=failed,
        )
        self.points.append(point)
        return point

    def _has_run(self, outcome: Outcome) -> bool:
        return outcome is Outcome.OK or (self.is_mix and outcome.is_from_program)


async def check_throughput(context: CheckContext) -> list[Finding | None]:
    """How many programs at a time are enough, and is the rate_limit near that?"""
    settings = context.settings
    plan = context.plan
    if plan.sweep is False:
        raise NotExamined("left out by --no-sweep")
    highest = plan.levels_for(local=settings.is_local, rate_limit=settings.rate_limit)
    levels = [level for level in (2**power for power in range(12)) if level <= highest] or [1]
    context.announce(
        f"load: {_what(plan)}, at most {_most_programs(plan, levels)} of them and {levels[-1]} at "
        f"a time, for about {plan.sweep_seconds:g} s; repeated up to {MOST_SWEEPS} times until "
        "the result is stable"
    )
    sweeps, knees = await _sweep_until_stable(context, levels)
    points = pooled([sweep.points for sweep in sweeps])
    knee = find_knee(points)
    last = sweeps[-1]
    context.measured["sweep"] = [asdict(point) for point in points]
    fitted = fit_model(
        points,
        sleeps=plan.sweep_sleep if plan.mix is None else None,
        status=min(last.statuses, default=None),
        retry_after=last.retry_after,
    )
    if fitted is not None:
        context.measured["server_model"] = asdict(fitted) | {
            "programs": _what(plan),
            "own_programs": plan.mix is not None,
            "alone": _spread([seconds for sweep in sweeps for seconds in sweep.alone]),
            "shape": "" if knee is None else knee.shape,
        }
    if knee is not None:
        context.measured["recommended_rate_limit"] = knee.rate_limit
        context.measured["recommended_by_sweep"] = knees
    return [
        _finding_about_throttling(context, last, knee),
        _finding_about_limit(context, points, knee, knees),
    ]


def _most_programs(plan: Plan, levels: Sequence[int]) -> int:
    if plan.mix is None:
        return sum(levels) * ROUNDS
    return sum(max(_LEAST_OF_A_MIX, _ROUNDS_OF_A_MIX * level) for level in levels)


_QUANTILES = 40
"""Values that stand for the seconds of programs (chosen, as `sfusion learn` does)."""


def _spread(seconds: Sequence[float]) -> list[float]:
    """Return the seconds themselves where they are few, else their quantiles."""
    if len(seconds) > _QUANTILES:
        seconds = quantiles(seconds, n=_QUANTILES + 1)
    return [float(f"{value:.3g}") for value in sorted(seconds)]


async def _sweep_until_stable(
    context: CheckContext, levels: Sequence[int]
) -> tuple[list[Sweep], list[int]]:
    """Measure until two sweeps agree; return the sweeps, and what those that tell recommend."""
    sweeps: list[Sweep] = []
    knees: list[int] = []
    while len(sweeps) < MOST_SWEEPS and not is_stable(knees):
        sweep = await _measure(context, levels)
        sweeps.append(sweep)
        await context.must_answer(
            f"it stopped answering after {sweep.points[-1].concurrency} programs at a time"
        )
        if find_knee(pooled([measured.points for measured in sweeps])) is None:
            break
        knee = find_knee(sweep.points)
        if knee is not None:
            knees.append(knee.rate_limit)
        if sweep.throttled_at is not None:
            break
    return sweeps, knees


def is_stable(knees: Sequence[int]) -> bool:
    """Do the last two sweeps recommend about the same?"""
    if len(knees) < 2:
        return False
    before, last = knees[-2:]
    return abs(before - last) <= max(1, STABLE * max(before, last))


def pooled(sweeps: Sequence[Sequence[Point]]) -> list[Point]:
    """Return the medians of several sweeps, for the levels that all of them measured."""
    found = []
    for level in [point.concurrency for point in min(sweeps, key=len)]:
        same = [point for points in sweeps for point in points if point.concurrency == level]
        found.append(
            Point(
                concurrency=level,
                throughput=median(point.throughput for point in same),
                latency=median(point.latency for point in same),
                requests=sum(point.requests for point in same),
                throttled=sum(point.throttled for point in same),
                failed=sum(point.failed for point in same),
            )
        )
    return found


async def _measure(context: CheckContext, levels: Sequence[int]) -> Sweep:
    loop = asyncio.get_running_loop()
    ends = loop.time() + context.plan.sweep_seconds
    sweep = Sweep(is_mix=context.plan.mix is not None)
    without_gain = 0
    best = 0.0
    for level in levels:
        await context.reconnect()
        began = loop.time()
        work = iter(_programs_of(context, level))
        answers_of_workers = await asyncio.gather(*(_work(context, work) for _ in range(level)))
        answers = list(itertools.chain.from_iterable(answers_of_workers))
        point = sweep.add(level, answers, loop.time() - began)
        without_gain = 0 if point.throughput > GAIN * best else without_gain + 1
        best = max(best, point.throughput)
        if (
            not point.works
            or without_gain == 2
            or point.throughput < COLLAPSED * best
            or loop.time() > ends
        ):
            break
    return sweep


_LEAST_OF_A_MIX = 12
"""Programs of a mix at each level, at least (chosen: fewer have no shares of long and short)."""
_ROUNDS_OF_A_MIX = 4
"""Programs of a mix for each concurrent worker (chosen: one takes as long as many others)."""


def _programs_of(context: CheckContext, level: int) -> list[str]:
    """Return the programs of a level, each with its mark."""
    plan = context.plan
    if plan.mix is None:
        # A fake that runs no code takes the program's duration from the hint beside the mark.
        codes = [f"import time\ntime.sleep({plan.sweep_sleep})"] * (ROUNDS * level)
        hints = f" seconds={plan.sweep_sleep}"
    else:
        codes = plan.mix.pick(max(_LEAST_OF_A_MIX, _ROUNDS_OF_A_MIX * level))
        hints = ""
    return [
        marked(f"sweep-{level}-{number}", code, hints=hints) for number, code in enumerate(codes)
    ]


async def _work(context: CheckContext, programs: Iterator[str]) -> list[HttpAnswer | NoAnswer]:
    """Send the programs that no other worker has sent, one after the other."""
    seconds = context.settings.config.default_timeout
    within = seconds + context.plan.patience
    memory = context.memory_limit_mb
    return [
        await context.post(Program(program, timeout=seconds, memory_limit_mb=memory), within=within)
        for program in programs
    ]


_WAITS_OR_LOSES = (
    "sfusion's tool repeats such calls later, verl's tool loses them; either way training waits"
)


def _finding_about_throttling(
    context: CheckContext, sweep: Sweep, knee: Knee | None
) -> Finding | None:
    level = sweep.throttled_at
    if level is None:
        return None
    statuses = " and ".join(map(str, sorted(sweep.statuses)))
    if sweep.retry_after is None:
        wait = "without Retry-After"
    else:
        wait = f"with Retry-After {sweep.retry_after:g}"
    limit = context.settings.rate_limit
    seen = f"with {level} programs at a time, requests get {statuses} {wait}"
    enough = context.settings.for_all(knee.rate_limit if knee else 1)
    change = f"set rate_limit to {enough}, or raise the quota"
    admitted = max((point.concurrency for point in sweep.points if point.works), default=0)
    if limit is not None and limit <= admitted:
        return note(
            "throttled",
            seen=seen,
            training=f"does not happen with {context.settings.own_limit}",
            change=change,
        )
    if limit is not None and limit < level:
        return hurts(
            "throttled",
            seen=f"{seen}, and with {admitted} none do; {context.settings.own_limit} is between",
            training=_WAITS_OR_LOSES,
            change=change,
        )
    verl = context.settings.client is Client.VERL
    make = breaks if verl and limit is not None else hurts
    return make(
        "throttled",
        seen=seen + (f"; it has {context.settings.own_limit}" if limit is not None else ""),
        training="verl's tool does not repeat such a call: it is lost, and the model reads an error"
        if verl
        else _WAITS_OR_LOSES,
        change=change,
    )


def _what(plan: Plan) -> str:
    if plan.mix is not None:
        return plan.mix.says
    return f"programs that sleep {plan.sweep_sleep:g} s"


def _finding_about_limit(
    context: CheckContext, points: Sequence[Point], knee: Knee | None, knees: Sequence[int]
) -> Finding | None:
    """Compare the rate_limit with the concurrency beyond which more gain nothing."""
    if knee is None:
        return _fails_when_idle(points)
    limit = context.settings.rate_limit
    measured = _Measured(context, points, knee, knees)
    is_bounded = knee.shape in ("plateau", "collapse", "failing")
    if limit is not None and limit > knee.rate_limit and is_bounded:
        return measured.limit_too_high(limit)
    if limit is not None and limit > knee.rate_limit and knee.shape == "throttled":
        return None  # the finding about that says what to set
    if limit is not None and limit <= knee.rate_limit < 2 * limit:
        return None
    return measured.recommendation(limit)


def _fails_when_idle(points: Sequence[Point]) -> Finding | None:
    """Say that programs fail although nothing else runs; nothing if they were only throttled."""
    if points and points[0].throttled:
        return None
    alone = points[0]
    return breaks(
        "fails-under-load",
        seen=f"{alone.failed} of {alone.requests} programs failed, sent one at a time",
        training="calls fail at random; their rewards are noise",
        change="look at the server's log",
    )


_ABOVE = {
    "plateau": "gains nothing",
    "collapse": "loses throughput",
    "failing": "fails calls",
}
"""What more than enough in flight does, by the shape of the curve."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """Throughput by concurrency, and what to set."""

    context: CheckContext
    points: Sequence[Point]
    knee: Knee
    knees: Sequence[int]
    """Of each sweep."""

    @property
    def figures(self) -> str:
        listed = ", ".join(
            f"{point.concurrency}: {point.throughput:.0f}/s" for point in self.points
        )
        programs = _what(self.context.plan)
        return f"(programs per second by concurrency: {listed}; measured with {programs})"

    @property
    def spread(self) -> str:
        """How sure the number is."""
        text = ""
        if len(set(self.knees)) > 1:
            low = min(self.knees)
            high = max(self.knees)
            text = f" ({low} to {high} in {len(self.knees)} sweeps)"
        if self.context.plan.mix is None:
            text += "; programs that compute need fewer: measure with --program FILE"
        return text

    @property
    def to_set(self) -> str:
        return self.context.settings.for_all(self.knee.rate_limit)

    def limit_too_high(self, limit: int) -> Finding:
        enough = self.knee.rate_limit
        wait = limit / self.knee.throughput
        is_late = wait > self.context.settings.config.default_timeout + MARGIN
        so = "most of it waiting"
        if is_late:
            so = "longer than clients wait: calls time out and run again"
        make = breaks if is_late else hurts
        return make(
            "rate-limit-above-knee",
            seen=(
                f"it has {self.context.settings.own_limit}, but above {enough} at a time "
                f"the sandbox {_ABOVE[self.knee.shape]} {self.figures}"
            ),
            training=f"with {limit} in flight even a short call takes about {wait:.1f} s, {so}",
            change=f"set rate_limit: {self.to_set}{self.spread}, or add sandboxes",
        )

    def recommendation(self, limit: int | None) -> Finding:
        enough = self.knee.rate_limit
        is_rising = self.knee.shape == "rising"
        end = "and throughput still rises" if is_rising else "and more gain nothing"
        if limit is not None and limit > enough:
            end = f"{end}; it has {self.context.settings.own_limit}"
            change = "unknown so far; --sweep measures further"
        elif limit is not None:
            config = self.context.settings.config
            change = f"raise rate_limit from {config.rate_limit} towards {self.to_set}{self.spread}"
        elif is_rising:
            change = f"set rate_limit: {self.to_set} or more{self.spread}; --sweep measures further"
        else:
            change = f"set rate_limit: {self.to_set}{self.spread}"
        return note(
            "rate-limit",
            seen=(
                f"at best it runs {self.knee.throughput:.0f} programs per second; "
                f"{enough} at a time are enough for nearly all of that, {end} {self.figures}"
            ),
            training=(
                "this rate_limit gets the most out of the sandbox without making calls wait "
                "inside it"
            ),
            change=change,
        )
