"""A process that is told to end tidies up first, as after Ctrl-C."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from threading import Thread

import pytest

from sfusion.harness.targets.signals import Terminated, signals_as_interrupts


@pytest.fixture(autouse=True)
def _as_started() -> Iterator[None]:
    kept = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_it_ends_as_with_ctrl_c(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt, match=number.name) as ended, signals_as_interrupts():
        os.kill(os.getpid(), number)
    assert ended.type is Terminated
    assert signal.getsignal(number) is signal.SIG_DFL


def test_who_handles_a_signal_keeps_it() -> None:
    heard: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    with signals_as_interrupts():
        os.kill(os.getpid(), signal.SIGTERM)
    assert heard == [signal.SIGTERM]


def test_a_thread_leaves_signals_alone() -> None:
    seen: list[object] = []

    def look() -> None:
        with signals_as_interrupts():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_DFL]
