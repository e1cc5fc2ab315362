"""What runs replace in this process is back at the end, in whichever order several threads end."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aiohttp.connector
import pytest

from sfusion.harness.errors import WorldError
from sfusion.harness.lab.runs import run_scenario
from sfusion.harness.lab.worlds.play import Play
from sfusion.harness.lab.worlds.replacing import diverted_logs, fast_clock
from sfusion.harness.lab.worlds.virtual_time import run_virtually
from tests.patience import PATIENCE

SHORT = 0.01
"""Seconds that pass exactly in virtual time. If they pass in real time, the test has not to wait
for long to fail."""


def _patched() -> list[object]:
    """What virtual time replaces in this process."""
    return [time.sleep, asyncio.Task, asyncio.wrap_future, aiohttp.connector.monotonic]  # type: ignore[attr-defined]


def _in_two_threads(first_fails: bool) -> tuple[float, BaseException | None]:
    """Run two loops in two threads: the first to begin is the first to end.

    Returns how much virtual time a sleep took in the second, after the first had ended, and the
    error of the first.
    """
    first_is_in, second_is_in, first_is_over = (threading.Event() for _ in range(3))
    times: list[float] = []
    errors: list[BaseException] = []

    async def first() -> None:
        first_is_in.set()
        assert second_is_in.wait(PATIENCE)
        if first_fails:
            raise RuntimeError("as it happens")

    async def second() -> None:
        second_is_in.set()
        assert first_is_over.wait(PATIENCE)
        time.sleep(SHORT)  # noqa: ASYNC251 - what a careless tool does
        times.append(asyncio.get_running_loop().time())

    def run_first() -> None:
        try:
            run_virtually(first())
        except RuntimeError as error:
            errors.append(error)

    def run_second() -> None:
        assert first_is_in.wait(PATIENCE)
        run_virtually(second())

    threads = [threading.Thread(target=run_first), threading.Thread(target=run_second)]
    for thread in threads:
        thread.start()
    threads[0].join()
    first_is_over.set()
    threads[1].join()
    return times[0], errors[0] if errors else None


@pytest.mark.parametrize("first_fails", [False, True])
def test_two_loops_in_two_threads_leave_nothing_replaced(first_fails: bool) -> None:
    before = _patched()
    passed, error = _in_two_threads(first_fails)
    assert _patched() == before
    assert passed == SHORT, "the second was in virtual time until its end"
    assert (error is not None) == first_fails


def test_after_one_loop_nothing_is_replaced_even_if_it_fails() -> None:
    async def main() -> None:
        raise RuntimeError("as it happens")

    before = _patched()
    with pytest.raises(RuntimeError, match="as it happens"):
        run_virtually(main())
    assert _patched() == before


def test_fast_clocks_and_virtual_time_may_end_in_any_order() -> None:
    replaced = [*_patched(), time.monotonic, socket.socket.settimeout]
    own = vars(socket.socket).keys()
    loop_is_in, clock_is_in = threading.Event(), threading.Event()

    async def main() -> None:
        loop_is_in.set()
        assert clock_is_in.wait(PATIENCE)

    thread = threading.Thread(target=lambda: run_virtually(main()))
    thread.start()
    assert loop_is_in.wait(PATIENCE)
    with fast_clock(5.0):
        clock_is_in.set()
        thread.join()
    assert [*_patched(), time.monotonic, socket.socket.settimeout] == replaced
    assert vars(socket.socket).keys() == own, "inherited methods stay inherited"


def test_two_speeds_at_once_are_refused_with_advice() -> None:
    clock = time.monotonic
    with fast_clock(5.0):
        with fast_clock(5.0):
            pass
        assert time.monotonic is not clock, "the first still needs it"
        refused = pytest.raises(WorldError, match=r"run 5 times as fast for another run.* needs 2:")
        with refused, fast_clock(2.0):
            pass
    assert time.monotonic is clock
    with fast_clock(2.0):
        assert time.monotonic is not clock


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def test_threads_that_divert_the_same_logger_get_their_own_lines_and_set_it_back() -> None:
    logger = logging.getLogger("tests.diverted")
    logger.setLevel(logging.ERROR)
    first, second = _Lines(), _Lines()
    first_is_in, second_is_in, first_is_over = (threading.Event() for _ in range(3))

    def divert_first() -> None:
        with diverted_logs(first, logger.name, level=logging.WARNING):
            first_is_in.set()
            assert second_is_in.wait(PATIENCE)
            logger.warning("of the first")

    def divert_second() -> None:
        assert first_is_in.wait(PATIENCE)
        with diverted_logs(second, logger.name, level=logging.WARNING):
            logger.warning("of the second")
            second_is_in.set()
            assert first_is_over.wait(PATIENCE)
            logger.warning("of the second, alone")

    threads = [threading.Thread(target=divert_first), threading.Thread(target=divert_second)]
    for thread in threads:
        thread.start()
    threads[0].join()
    first_is_over.set()
    threads[1].join()
    assert first.lines == ["of the first"]
    assert second.lines == ["of the second", "of the second, alone"]
    assert (logger.level, logger.propagate, logger.handlers) == (logging.ERROR, True, [])


def test_two_scenarios_in_two_threads_write_the_journals_that_each_writes_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = Path(__file__).parents[4] / "scenarios" / "cut-off-worker.yaml"
    seeds = (1, 2)
    alone = [run_scenario(scenario, seed=seed)[0].journal.events for seed in seeds]
    assert all(any(event["event"] == "log" for event in events) for events in alone)
    before = [*_patched(), logging.getLogger("sfusion_tools").propagate]
    both_are_in = threading.Barrier(2)
    run = Play.run

    async def run_together(play: Play) -> None:
        both_are_in.wait(PATIENCE)
        await run(play)

    monkeypatch.setattr(Play, "run", run_together)
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(run_scenario, scenario, seed=seed) for seed in seeds]
        together = [future.result()[0].journal.events for future in running]
    assert together == alone
    assert [*_patched(), logging.getLogger("sfusion_tools").propagate] == before
