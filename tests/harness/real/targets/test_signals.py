"""SIGTERM and SIGHUP act like Ctrl-C, so that cleanup runs."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Iterator
from threading import Thread

import pytest

from sfusion.harness.real.targets.container import Terminated, signals_as_interrupts


@pytest.fixture(autouse=True)
def _as_started() -> Iterator[None]:
    kept = {
        number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)
    }
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_signals_raise_terminated(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt, match=number.name) as ended, signals_as_interrupts():
        os.kill(os.getpid(), number)
    assert ended.type is Terminated
    assert signal.getsignal(number) is signal.SIG_DFL


def test_an_existing_handler_is_kept() -> None:
    received: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    with signals_as_interrupts():
        os.kill(os.getpid(), signal.SIGTERM)
    assert received == [signal.SIGTERM]


def test_no_task_dies_with_a_traceback_when_asyncio_runs(caplog: pytest.LogCaptureFixture) -> None:
    async def child() -> None:
        os.kill(os.getpid(), signal.SIGTERM)  # the handler runs in the step of this task
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.gather(*(child() for _ in range(3)))

    with pytest.raises(KeyboardInterrupt), signals_as_interrupts():
        asyncio.run(main())
    gc.collect()
    assert caplog.text == ""


def test_signals_are_untouched_outside_the_main_thread() -> None:
    seen: list[object] = []

    def look() -> None:
        with signals_as_interrupts():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_DFL]
