"""Replaces attributes of modules and classes, the handlers of loggers, and all clocks, for a while.

All of this is state of the process, so runs in several threads share it: whoever ends first, at the
end everything is as it was before.

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
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from ...errors import WorldError
from .. import pauses

_lock = threading.RLock()
"""Held while something is replaced or set back. A signal handler may do that too."""


class SharedContext:
    """A context for many threads: the first to enter sets it up, the last to leave undoes it."""

    def __init__(self, make: Callable[[], AbstractContextManager[object]]) -> None:
        self._make = make
        self._users = 0
        self._made = ExitStack()

    @property
    def is_in_use(self) -> bool:
        return self._users > 0

    def __enter__(self) -> None:
        with _lock:
            if not self._users:
                self._made.enter_context(self._make())
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with _lock:
            self._users -= 1
            if not self._users:
                self._made.close()


_NOTHING = object()


class _Replaced:
    """An attribute that is replaced, perhaps several times: the last value that is left counts."""

    def __init__(self, owner: Any, name: str) -> None:
        self.key = id(owner), name
        self._owner = owner
        self._name = name
        # What the owner itself has: an inherited attribute must not become its own.
        self._original = vars(owner).get(name, _NOTHING)
        self.values: list[Any] = []

    def apply(self) -> None:
        value = self.values[-1] if self.values else self._original
        if value is _NOTHING:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, value)


_all_replaced: dict[tuple[int, str], _Replaced] = {}


@contextmanager
def replaced(owner: Any, **values: Any) -> Iterator[None]:
    """Set attributes of a module or class, and set them back at the end.

    Others may replace the same attributes meanwhile, and may end before or after this one.
    """
    ours: list[tuple[_Replaced, Any]] = []
    try:
        with _lock:
            for name, value in values.items():
                key = id(owner), name
                if key not in _all_replaced:
                    _all_replaced[key] = _Replaced(owner, name)
                attribute = _all_replaced[key]
                ours.append((attribute, value))
                attribute.values.append(value)
                attribute.apply()
        yield
    finally:
        with _lock:
            for attribute, value in ours:
                attribute.values.remove(value)
                attribute.apply()
                if not attribute.values:
                    del _all_replaced[attribute.key]


class _DivertedLogger:
    """What a logger was like before its lines were diverted."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._propagate = logger.propagate
        self._level = logger.level
        self.handlers = 0

    def restore(self) -> None:
        self._logger.propagate = self._propagate
        self._logger.setLevel(self._level)


_all_diverted: dict[str, _DivertedLogger] = {}
_diverting_threads: list[int] = []


@contextmanager
def diverted_logs(
    handler: logging.Handler, *names: str, level: int | None = None
) -> Iterator[None]:
    """Send the log lines of some loggers to a handler and nowhere else.

    If several threads do this at the same time, each gets the lines that it logs itself. Lines of
    other threads go to all of them.
    """
    thread = threading.get_ident()

    def is_ours(record: logging.LogRecord) -> bool:
        return record.thread == thread or record.thread not in _diverting_threads

    handler.addFilter(is_ours)
    with _lock:
        _diverting_threads.append(thread)
        for name in names:
            _divert(logging.getLogger(name), handler, level)
    try:
        yield
    finally:
        with _lock:
            _diverting_threads.remove(thread)
            for name in names:
                _set_back(logging.getLogger(name), handler)
        handler.removeFilter(is_ours)


def _divert(logger: logging.Logger, handler: logging.Handler, level: int | None) -> None:
    if logger.name not in _all_diverted:
        _all_diverted[logger.name] = _DivertedLogger(logger)
    _all_diverted[logger.name].handlers += 1
    logger.addHandler(handler)
    logger.propagate = False
    if level is not None:
        logger.setLevel(level)


def _set_back(logger: logging.Logger, handler: logging.Handler) -> None:
    logger.removeHandler(handler)
    diverted = _all_diverted[logger.name]
    diverted.handlers -= 1
    if not diverted.handlers:
        del _all_diverted[logger.name]
        diverted.restore()


_CLOCKS = ("time", "monotonic", "perf_counter")
_SELECTORS = (
    "SelectSelector",
    "PollSelector",
    "EpollSelector",
    "DevpollSelector",
    "KqueueSelector",
)


class _FastClocks:
    """The speed of this process: several runs may share one, but each needs its own."""

    def __init__(self) -> None:
        self._speed = 1.0
        self._shared = SharedContext(lambda: _faster_process(self._speed))

    @contextmanager
    def at(self, speed: float) -> Iterator[None]:
        with _lock:
            if self._shared.is_in_use and self._speed != speed:
                raise WorldError(
                    f"the clocks of this process run {self._speed:g} times as fast for another "
                    f"run, and this one needs {speed:g}: play them one after the other, or each in "
                    f"a process of its own"
                )
            self._speed = speed
            self._shared.__enter__()
        try:
            yield
        finally:
            self._shared.__exit__()


_fast_clocks = _FastClocks()


@contextmanager
def fast_clock(speed: float) -> Iterator[None]:
    """Let time pass ``speed`` times as fast in this process.

    Raises WorldError if another thread plays at another speed.
    """
    if speed == 1.0:
        yield
        return
    with _fast_clocks.at(speed):
        yield


@contextmanager
def _faster_process(speed: float) -> Iterator[None]:
    sleep = time.sleep
    settimeout = socket.socket.settimeout
    gettimeout = socket.socket.gettimeout

    def fast_sleep(seconds: float) -> None:
        pauses.note_pause(seconds)
        sleep(seconds / speed)

    def timeout_of(sock: socket.socket) -> float | None:
        seconds = gettimeout(sock)
        return None if seconds is None else seconds * speed

    clocks = {name: _faster(getattr(time, name), speed) for name in _CLOCKS}
    shorter_timeout = _shorter(settimeout, speed)
    shorter_wait = _noted(_shorter(threading.Condition.wait, speed))
    with ExitStack() as stack:
        stack.enter_context(replaced(pauses, is_measured=True))
        for name in _SELECTORS:
            selector = getattr(selectors, name, None)
            if selector is not None:
                shorter_select = _noted(_shorter(selector.select, speed))
                stack.enter_context(replaced(selector, select=shorter_select))
        stack.enter_context(replaced(time, sleep=fast_sleep, **clocks))
        stack.enter_context(replaced(threading.Condition, wait=shorter_wait))
        stack.enter_context(replaced(threading.Thread, join=_noted(threading.Thread.join)))
        stack.enter_context(
            replaced(socket.socket, settimeout=shorter_timeout, gettimeout=timeout_of)
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


def _noted(wait: Callable[..., Any]) -> Callable[..., Any]:
    """Note how long a thread may wait."""

    def noted(owner: Any, timeout: float | None = None) -> Any:
        pauses.note_pause(timeout)
        return wait(owner, timeout)

    return noted
