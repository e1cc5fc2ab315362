"""What surrounds a client while it is looked at: clocks that can jump, a distant time zone, and a
place for what it prints and logs."""

from __future__ import annotations

import io
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any

from .recorder import Recorder
from .replacing import SharedContext, replaced
from .virtual_time import VirtualTimeLoop


def virtual_clocks(loop: VirtualTimeLoop) -> Any:
    """Let the clocks of ``time`` follow the loop; yield a function that makes the wall clock
    jump."""
    wall = float(int(time.time()))  # dates have whole seconds, and a run is a function of its seed
    began = time.monotonic()

    def monotonic() -> float:
        return began + loop.time()

    return jumping(lambda: wall + loop.time(), monotonic=monotonic, perf_counter=monotonic)


@contextmanager
def jumping(
    wall: Callable[[], float], **others: Callable[[], float]
) -> Iterator[Callable[[float], None]]:
    """Replace the wall clock, and other clocks of ``time``; yield a function that makes the wall
    clock jump."""
    jumped = 0.0

    def jump(seconds: float) -> None:
        nonlocal jumped
        jumped += seconds

    with replaced(time, time=lambda: wall() + jumped, **others):
        yield jump


@contextmanager
def _eastern_time() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "East-14"
    time.tzset()
    try:
        yield
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()


_far_from_greenwich = SharedContext(_eastern_time)


def far_from_greenwich() -> SharedContext:
    """Set the local time so far to the east that a date of HTTP, which is in GMT, is over if it is
    read as local."""
    return _far_from_greenwich


class ClientOutput(logging.Handler):
    """Keeps what a client prints and logs, down to DEBUG; the journal gets what is worth it."""

    recorder: Recorder | None = None

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._printed = io.StringIO()

    @contextmanager
    def captured(self) -> Iterator[None]:
        root = logging.getLogger()
        level = root.level
        handlers = root.handlers[:]
        root.handlers[:] = [self]
        root.setLevel(logging.DEBUG)
        try:
            with redirect_stdout(self._printed), redirect_stderr(self._printed):
                yield
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)

    def emit(self, record: logging.LogRecord) -> None:
        """Note warnings, and whatever holds a secret, but for the fake's own log."""
        if self.recorder is None or record.name.startswith("sfusion.fakes"):
            return
        text = self.format(record)
        if record.levelno >= logging.WARNING or self.recorder.holds_secret(text):
            self._note("log", level=record.levelname.lower(), text=text)

    def note_printed(self, more: str = "") -> None:
        text = self._printed.getvalue() + more
        if text and self.recorder is not None:
            self._note("printed", text=text)

    def _note(self, event: str, **facts: Any) -> None:
        """Note an event, also after the end of the run."""
        assert self.recorder is not None
        on = self.recorder.on
        self.recorder.on = True
        with suppress(RuntimeError):  # its clock is gone with the loop
            self.recorder.note("world", event, **facts)
        self.recorder.on = on
