"""Signals that end a process at once, made to end it as Ctrl-C does: everything is tidied up on the way out."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Terminated(KeyboardInterrupt):
    """Raised in the main thread when the process is told to end; handled wherever Ctrl-C is."""


@contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP raise Terminated, unless the program already does something else with them."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python lets only the main thread say what happens
        return
    taken = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in taken:
            if signal.getsignal(number) is _end:
                signal.signal(number, signal.SIG_DFL)


def _end(number: int, _: FrameType | None) -> None:
    raise Terminated(signal.Signals(number).name)
