"""The sweep: more and more programs at a time, until more at a time does no more."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median

from sfusion.harness.doctor.context import CheckContext, marked
from sfusion.harness.doctor.finding import Finding, breaks, hurts, note
from sfusion.harness.doctor.http import HttpAnswer
from sfusion.harness.doctor.knee import COLLAPSED, Knee, Point, find_knee
from sfusion.harness.doctor.settings import Client
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox.answer import read_answer
from sfusion_tools.sandbox.program import Program

ROUNDS = 2
"""Programs that each of those at a time sends, one after the other."""
GAIN = 1.15
"""A level that is not better than the best before by this factor brought nothing; after two of them it is enough."""
MARGIN = 10.0
"""Seconds beyond a program's own time after which clients give up."""


@dataclass(slots=True)
class _Level:
    """What came back at one level."""

    seconds: list[float] = field(default_factory=list)
    throttled: int = 0
    failed: int = 0
    statuses: set[int] = field(default_factory=set)
    retry_after: str | None = None


@dataclass(slots=True)
class Sweep:
    """What the whole sweep measured."""

    points: list[Point] = field(default_factory=list)
    throttled_at: int | None = None
    statuses: set[int] = field(default_factory=set)
    retry_after: str | None = None


async def sweep(context: CheckContext) -> list[Finding]:
    """Measure throughput at rising levels, and say what rate_limit follows from it."""
    settings, plan = context.settings, context.plan
    highest = plan.levels_for(local=settings.is_local, rate_limit=settings.rate_limit)
    levels = [level for level in (2**power for power in range(12)) if level <= highest] or [1]
    context.announce(
        f"load: at most {sum(levels) * ROUNDS} programs of {plan.sweep_sleep:g} s, at most {levels[-1]} at a time, "
        f"for about {plan.sweep_seconds:g} s"
    )
    measured = await _measure(context, levels)
    await context.must_answer(f"after {measured.points[-1].concurrency} programs at a time it stopped answering")
    context.measured["sweep"] = [asdict(point) for point in measured.points]
    knee = find_knee(measured.points)
    if knee is not None:
        context.measured["recommended_rate_limit"] = knee.rate_limit
    return [*_throttling(context, measured, knee), *_limit(context, measured.points, knee)]


async def _measure(context: CheckContext, levels: Sequence[int]) -> Sweep:
    loop = asyncio.get_running_loop()
    ends = loop.time() + context.plan.sweep_seconds
    measured, without_gain, best = Sweep(), 0, 0.0
    for level in levels:
        point, came = await _one_level(context, level)
        measured.points.append(point)
        measured.statuses |= came.statuses
        if came.throttled and measured.throttled_at is None:
            measured.throttled_at, measured.retry_after = level, came.retry_after
        without_gain = 0 if point.throughput > GAIN * best else without_gain + 1
        best = max(best, point.throughput)
        if not point.works or without_gain == 2 or point.throughput < COLLAPSED * best or loop.time() > ends:
            break
    return measured


async def _one_level(context: CheckContext, level: int) -> tuple[Point, _Level]:
    loop = asyncio.get_running_loop()
    came = _Level()
    began = loop.time()
    await asyncio.gather(*(_worker(context, level, number, came) for number in range(level)))
    seconds = max(loop.time() - began, 1e-6)
    latency = median(came.seconds) if came.seconds else 0.0
    point = Point(level, len(came.seconds) / seconds, latency, level * ROUNDS, came.throttled, came.failed)
    return point, came


async def _worker(context: CheckContext, level: int, number: int, came: _Level) -> None:
    sleep = context.plan.sweep_sleep
    for turn in range(ROUNDS):
        # A fake that runs nothing takes the time of the program from the hint beside the mark.
        code = marked(f"sweep-{level}-{number}-{turn}", f"import time\ntime.sleep({sleep})", hints=f" seconds={sleep}")
        program = Program(code, timeout=30.0, memory_limit_mb=context.memory_limit_mb)
        answer = await context.http.post(
            context.settings.at("run_code"), program.body(), within=context.plan.patience, proxy=context.proxy
        )
        if not isinstance(answer, HttpAnswer):
            came.failed += 1
        elif answer.status in (429, 503):
            came.throttled += 1
            came.statuses.add(answer.status)
            came.retry_after = answer.headers.get("Retry-After", came.retry_after)
        elif read_answer(answer.status, answer.content_type, answer.body).outcome is Outcome.OK:
            came.seconds.append(answer.seconds)
        else:
            came.failed += 1


def _throttling(context: CheckContext, measured: Sweep, knee: Knee | None) -> list[Finding]:
    level = measured.throttled_at
    if level is None:
        return []
    statuses = " and ".join(map(str, sorted(measured.statuses)))
    wait = f"with Retry-After {measured.retry_after}" if measured.retry_after else "without Retry-After"
    limit = context.settings.rate_limit
    seen = f"with {level} programs at a time requests are answered {statuses} {wait}"
    change = f"set rate_limit to {knee.rate_limit if knee else 1}, or raise the quota"
    if limit is not None and limit < level:
        return [note("throttled", seen=seen, training=f"not met with rate_limit {limit}", change=change)]
    verl = context.settings.client is Client.VERL
    make = breaks if verl and limit is not None else hurts
    return [
        make(
            "throttled",
            seen=seen + (f"; rate_limit is {limit}" if limit is not None else ""),
            training="verl's tool does not repeat such a call: it is lost, and the model is told so"
            if verl
            else "sfusion's tool repeats such calls later, verl's loses them; either way training waits",
            change=change,
        )
    ]


def _limit(context: CheckContext, points: Sequence[Point], knee: Knee | None) -> list[Finding]:
    limit = context.settings.rate_limit
    if knee is None:
        if points and points[0].throttled:
            return []
        return [
            breaks(
                "fails-under-load",
                seen=f"{points[0].failed} of {points[0].requests} short programs failed with one at a time",
                training="calls fail at random; their rewards are noise",
                change="look at the server's log",
            )
        ]
    figures = ", ".join(f"{point.concurrency}: {point.throughput:.0f}/s" for point in points)
    if limit is not None and limit > knee.rate_limit and knee.shape in ("plateau", "collapse", "failing"):
        wait = limit / knee.throughput
        late = wait > context.settings.default_timeout + MARGIN
        what = {"plateau": "gains nothing", "collapse": "loses throughput", "failing": "fails calls"}[knee.shape]
        make = breaks if late else hurts
        return [
            make(
                "rate-limit-above-knee",
                seen=f"rate_limit is {limit}, but beyond {knee.rate_limit} at a time it {what} (programs/s by number "
                f"at a time: {figures})",
                training=f"at {limit} in flight a call of a moment takes about {wait:.1f} s"
                + (", longer than clients wait: calls time out and run again" if late else ": they only wait, inside"),
                change=f"set rate_limit: {knee.rate_limit}, or add sandboxes",
            )
        ]
    if limit is not None and limit <= knee.rate_limit and 2 * limit > knee.rate_limit:
        return []
    end = "and more with more" if knee.shape == "rising" else "beyond which it gains nothing"
    change = f"set rate_limit: {knee.rate_limit}"
    if limit is not None and limit > knee.rate_limit:
        end, change = f"{end}; rate_limit is {limit}", "nothing known; --sweep measures further"
    elif limit is not None:
        change = f"raise rate_limit from {limit} towards {knee.rate_limit}"
    elif knee.shape == "rising":
        change = f"set rate_limit: {knee.rate_limit} or more; --sweep measures further"
    return [
        note(
            "rate-limit",
            seen=f"{knee.rate_limit} at a time get practically all of its {math.floor(knee.throughput)} programs/s, "
            f"{end} (programs/s by number at a time: {figures})",
            training="the rate_limit that gets the most out of this sandbox without making calls wait inside it",
            change=change,
        )
    ]
