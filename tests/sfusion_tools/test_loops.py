"""Blocking work must not keep a process or a loop from ending."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading

import pytest
import uvloop

from sfusion.harness.lab.worlds.virtual_time import VirtualTimeLoop
from sfusion_tools._loops import in_daemon_thread, in_own_loop, tells_real_time
from tests.patience import PATIENCE


def test_only_a_simulated_loop_keeps_its_own_time() -> None:
    told = {}
    for make in (asyncio.new_event_loop, uvloop.new_event_loop, VirtualTimeLoop):
        loop = make()
        told[type(loop).__name__] = tells_real_time(loop)
        loop.close()
    assert list(told.values()) == [True, True, False], told


async def test_in_daemon_thread_returns_the_result() -> None:
    main = threading.get_ident()
    assert await in_daemon_thread(lambda: threading.get_ident() != main)


async def test_in_daemon_thread_raises_the_error() -> None:
    with pytest.raises(ZeroDivisionError):
        await in_daemon_thread(lambda: 1 // 0)


async def test_the_caller_can_be_cancelled_while_the_work_is_stuck() -> None:
    started, free, over = asyncio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        loop.call_soon_threadsafe(started.set)
        free.wait()
        over.set()

    waiting = asyncio.ensure_future(in_daemon_thread(work))
    await started.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    free.set()
    assert await asyncio.to_thread(
        over.wait, PATIENCE
    )  # its late result is dropped without an error


def test_the_process_exits_even_if_the_work_never_ends() -> None:
    code = """
import asyncio, threading
from sfusion_tools._loops import in_daemon_thread, in_own_loop

async def main():
    stuck = asyncio.Event()
    loop = asyncio.get_running_loop()
    def work():
        loop.call_soon_threadsafe(stuck.set)
        threading.Event().wait()
    waiting = asyncio.ensure_future(in_daemon_thread(work))
    await stuck.wait()
    waiting.cancel()

asyncio.run(main())
"""
    assert (
        subprocess.run([sys.executable, "-c", code], timeout=PATIENCE, check=False).returncode == 0
    )


def test_an_interrupted_caller_cancels_the_work_in_its_own_loop() -> None:
    main, log = threading.get_ident(), list[str]()

    async def work() -> None:
        signal.pthread_kill(main, signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            log.append("ended")

    with pytest.raises(KeyboardInterrupt):
        in_own_loop(work())
    assert log == ["ended"]


def test_the_loop_of_the_callers_thread_is_left_alone() -> None:
    async def number() -> int:
        return 3

    with asyncio.Runner() as runner:
        own = runner.get_loop()
        asyncio.set_event_loop(own)
        assert in_own_loop(number()) == 3
        assert asyncio.get_event_loop_policy().get_event_loop() is own
