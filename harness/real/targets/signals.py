"""Let SIGTERM and SIGHUP end the process the way Ctrl-C does, so that cleanup runs on the way out."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Terminated(KeyboardInterrupt):
    """Raised in the main thread when the process is asked to end; handled wherever Ctrl-C is."""


@contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP act like Ctrl-C, unless the program has a handler of its own for them."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python lets only the main thread install handlers
        return
    taken = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in taken:
            if signal.getsignal(number) is _interrupt:
                signal.signal(number, signal.SIG_DFL)


def _interrupt(number: int, frame: FrameType | None) -> None:
    on_ctrl_c = signal.getsignal(signal.SIGINT)
    if callable(on_ctrl_c) and on_ctrl_c is not signal.default_int_handler:
        # asyncio.run cancels its main task on Ctrl-C. An exception raised here instead could end a child task, whose
        # traceback asyncio prints when the task is collected.
        on_ctrl_c(signal.SIGINT, frame)
    else:
        raise Terminated(signal.Signals(number).name)
