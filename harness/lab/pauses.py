"""For how long a thread has paused, while the clock of this process runs faster: a client that
never pauses between two attempts shows it here, however slow the machine is."""

from __future__ import annotations

import math
import threading

is_measured = False
"""Are the waits of this process noted?"""


class _Paused(threading.local):
    seconds = 0.0


_paused = _Paused()


def note_pause(seconds: float | None) -> None:
    """Note that this thread waits for so many seconds, or for something that may take any time."""
    _paused.seconds += math.inf if seconds is None else max(0.0, seconds)


def seconds_paused() -> float | None:
    """Return how long this thread has waited since it began; None if that is not measured."""
    return _paused.seconds if is_measured else None
