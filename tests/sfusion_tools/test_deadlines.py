"""The shared timer does what a timer of the loop for each deadline would do."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from sfusion_tools.deadlines import SPARED, Deadlines, TimeLimit

from sfusion.harness.lab.worlds.virtual_time import run_virtually
from sfusion_tools.runtime import runtime


def test_deadlines_strike_at_their_time_and_dropped_ones_never() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        deadlines = Deadlines(loop)
        plan = random.Random(7)
        due: list[tuple[float, int]] = []
        struck: list[tuple[float, int]] = []
        for number in range(2000):
            when = round(loop.time() + plan.uniform(0.1, 20), 1)
            deadline = deadlines.at(when, lambda number=number: struck.append((loop.time(), number)))
            if plan.random() < 0.8:
                loop.call_later(plan.uniform(0, when - loop.time()) * 0.99, deadlines.drop, deadline)
            else:
                due.append((when, number))
            await asyncio.sleep(plan.uniform(0, 0.02))
        await asyncio.sleep(21)
        assert [number for _, number in struck] == [number for _, number in sorted(due)]
        assert [at for at, _ in struck] == pytest.approx([when for when, _ in sorted(due)])

    run_virtually(main())


def test_dropped_deadlines_do_not_pile_up() -> None:
    async def main() -> None:
        deadlines = Deadlines(asyncio.get_running_loop())
        kept = [deadlines.at(100.0, list) for _ in range(10)]
        for _ in range(10_000):
            deadlines.drop(deadlines.at(50.0, list))
        assert deadlines.pending == len(kept)
        assert len(deadlines._heap) <= 2 * (len(kept) + SPARED)

    run_virtually(main())


def test_a_deadline_in_the_past_strikes_in_the_next_round() -> None:
    async def main() -> None:
        await asyncio.sleep(5)
        struck: list[float] = []
        Deadlines.of(runtime.scope()).at(1.0, lambda: struck.append(asyncio.get_running_loop().time()))
        assert struck == []
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert struck == [5.0]

    run_virtually(main())


async def _limited(kind: str, seconds: float, work: Coroutine[Any, Any, Any]) -> Any:
    if kind == "asyncio":
        async with asyncio.timeout(seconds):
            return await work
    with TimeLimit(Deadlines.of(runtime.scope()), seconds):
        return await work


async def _stubborn(seconds: float) -> str:
    """Work that needs its time to end after a cancellation."""
    try:
        await asyncio.sleep(100)
    finally:
        await asyncio.sleep(seconds)
    return "never"


async def _deaf(seconds: float) -> str:
    """Work that ignores a cancellation."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        return "went on"
    return "done"


@pytest.mark.parametrize("cancelled_at", [None, 1.0, 2.0, 3.0])
@pytest.mark.parametrize(
    "work",
    [
        lambda: asyncio.sleep(1.5, "done"),
        lambda: asyncio.sleep(9),
        lambda: _stubborn(1),
        lambda: _deaf(9),
        lambda: _deaf(1),
    ],
    ids=["quick", "slow", "stubborn", "deaf", "deaf but quick"],
)
def test_a_time_limit_ends_as_asyncios_does(
    work: Callable[[], Coroutine[Any, Any, Any]], cancelled_at: float | None
) -> None:
    ends = []
    for kind in ("asyncio", "ours"):

        async def main(kind: str = kind) -> tuple[object, float, int]:
            loop = asyncio.get_running_loop()
            task = asyncio.ensure_future(_limited(kind, 2.0, work()))
            if cancelled_at is not None:
                loop.call_later(cancelled_at, task.cancel)
            try:
                end: object = await task
            except (TimeoutError, asyncio.CancelledError) as error:
                end = type(error)
            return end, loop.time(), task.cancelling()

        ends.append(run_virtually(main()))
    assert ends[0] == ends[1]


def test_the_end_of_the_loop_leaves_no_timer() -> None:
    async def main() -> asyncio.AbstractEventLoop:
        Deadlines.of(runtime.scope()).at(1e6, list)
        return asyncio.get_running_loop()

    loop = asyncio.run(main())
    assert not [handle for handle in loop._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]
