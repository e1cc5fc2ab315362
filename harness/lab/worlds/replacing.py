"""Replaces attributes of modules and classes, the handlers of loggers, and all clocks, for a while.

With a faster clock, every wait of this process is shortened by one factor: clocks (``time.time``,
``time.monotonic``, ``time.perf_counter``), ``time.sleep``, event loops, timeouts of sockets and
waits of ``threading`` all use it, in every thread. What takes processor time or another process
takes as long as ever, and so does what keeps a clock of its own (C libraries, ``datetime.now()``):
such waits are not shortened.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any


@contextmanager
def replaced(owner: Any, **made: Any) -> Iterator[None]:
    """Set attributes of an owner, and set them back at the end."""
    before = {name: getattr(owner, name) for name in made}
    try:
        for name, one in made.items():
            setattr(owner, name, one)
        yield
    finally:
        for name, one in before.items():
            setattr(owner, name, one)


@contextmanager
def diverted_logs(
    handler: logging.Handler, *names: str, level: int | None = None
) -> Iterator[None]:
    """Send the log lines of some loggers to a handler and nowhere else."""
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger, logger.propagate, logger.level) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
        if level is not None:
            logger.setLevel(level)
    try:
        yield
    finally:
        for logger, propagate, old in before:
            logger.removeHandler(handler)
            logger.propagate = propagate
            logger.setLevel(old)


_CLOCKS = ("time", "monotonic", "perf_counter")
_SELECTORS = (
    "SelectSelector",
    "PollSelector",
    "EpollSelector",
    "DevpollSelector",
    "KqueueSelector",
)


@contextmanager
def fast_clock(speed: float) -> Iterator[None]:
    """Let time pass ``speed`` times as fast in this process."""
    if speed == 1.0:
        yield
        return
    sleep, settimeout, gettimeout = time.sleep, socket.socket.settimeout, socket.socket.gettimeout

    def timeout_of(sock: socket.socket) -> float | None:
        return None if (seconds := gettimeout(sock)) is None else seconds * speed

    clocks = {name: _faster(getattr(time, name), speed) for name in _CLOCKS}
    wait = _shorter(threading.Condition.wait, speed)
    with ExitStack() as stack:
        for found in (getattr(selectors, name) for name in _SELECTORS if hasattr(selectors, name)):
            stack.enter_context(replaced(found, select=_shorter(found.select, speed)))
        stack.enter_context(replaced(time, sleep=lambda seconds: sleep(seconds / speed), **clocks))
        stack.enter_context(replaced(threading.Condition, wait=wait))
        stack.enter_context(
            replaced(socket.socket, settimeout=_shorter(settimeout, speed), gettimeout=timeout_of)
        )
        yield


def _faster(clock: Callable[[], float], speed: float) -> Callable[[], float]:
    began = clock()
    return lambda: began + (clock() - began) * speed


def _shorter(wait: Callable[..., Any], speed: float) -> Callable[..., Any]:
    """Divide the first argument of a method; one that is missing or None waits for ever."""

    def shorter(owner: Any, timeout: float | None = None) -> Any:
        return wait(owner, timeout if timeout is None or timeout < 0 else timeout / speed)

    return shorter
