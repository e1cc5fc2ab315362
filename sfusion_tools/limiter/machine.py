"""The limiter of a machine: one limit for all its processes that name it, without Ray or a server.

Each permit is a slot in a file (``slots``). Callers of one process wait in the order in which they
came, whatever their thread or event loop. Between processes there is no order: each looks now and
then whether a slot has become free, and lets others look first when it has just released one.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import math
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Self, TypeVar
from weakref import WeakSet, ref

from sfusion_tools.errors import (
    ConfigError,
    LimiterClosed,
    LimiterError,
    LimiterUnreachable,
    PermitTimeout,
)
from sfusion_tools.limiter.host import settle_difference
from sfusion_tools.limiter.permit import Permit
from sfusion_tools.limiter.settings import LimiterSettings
from sfusion_tools.limiter.slots import (
    FOLDER,
    MachineState,
    Rules,
    SlotFile,
    check_size,
    slot_path,
)
from sfusion_tools.runtime import LoopResource, LoopScope, runtime

T = TypeVar("T")

LOOK_SECONDS = 0.01
"""The mean pause between two looks for a slot. Chosen: little beside the run of a program, and
cheap."""

DEATH_SECONDS = 0.25
"""How often a process looks through all slots although nobody has released one: their holder may
be dead. Chosen: little beside the restart of whatever died."""

LOOKING_SHARE = 0.05
"""The most of its time that a process spends with looking: with many slots it looks less often."""

_COMMAND_SECONDS = 5.0
"""Chosen: no process is at the gate for so long unless it was stopped there."""


class MachineSlots:
    """This process's part of a machine's limiter: the slots it holds, and the callers that wait.

    Used by all its threads and event loops.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._file: SlotFile | None = None
        self._line: deque[_Waiter] = deque()
        self._settings: LimiterSettings | None = None
        """What this process asked for first: it counts if no other process uses the limiter."""
        self._succeeded = 0
        self._throttled = 0
        self._last_look = _Look()
        _all_slots.add(self)

    def agree(self, settings: LimiterSettings, *, apply: bool) -> bool:
        """Compare settings with those in force, and warn of a difference or apply them.

        False if that has to be tried again, because another process looks at the file just now.
        """
        with self._lock, _AsLimiterError(self.name):
            self._settings = self._settings or settings
            file = self._current_file()
            with file.gate() as entered:
                if not entered:
                    return False
                rules = file.attach(self._settings, time.monotonic())
                if rules.settings != settings:
                    settle_difference(
                        self.name,
                        running=rules.settings,
                        asked=settings,
                        apply=partial(_configure, file, rules) if apply else None,
                        command="sfusion limiter --machine --resize N",
                    )
        return True

    def take(self) -> tuple[SlotFile, int] | None:
        """Take a slot for a caller that has just come; None if it has to wait in the line."""
        with self._lock, _AsLimiterError(self.name):
            if self._line:
                return None
            file = self._current_file()
            taken = self._look(file, 1, polite=True)
        return (file, taken[0]) if taken else None

    def join(self, waiter: _Waiter) -> None:
        """Stand at the end of the line."""
        with self._lock:
            self._line.append(waiter)

    def serve(self, *, polite: bool) -> None:
        """Take slots that are free, and give them to the callers that have waited longest.

        A ``polite`` process takes none while callers of another one wait. This raises LimiterError
        if the file cannot be used.
        """
        with self._lock, _AsLimiterError(self.name):
            while self._line and self._line[0].is_gone:
                self._line.popleft()
            if not self._line:
                if self._file is not None:
                    self._file.announce_waiting(False)
                return
            file = self._current_file()
            for slot in self._look(file, len(self._line), polite=polite):
                self._hand_over(file, slot)

    def release(
        self, file: SlotFile, slot: int, *, succeeded: bool = False, throttled: bool = False
    ) -> None:
        """Give a slot back. This takes no lock, so a finaliser may call it in any thread."""
        self._succeeded += succeeded
        self._throttled += throttled
        file.release(slot)
        with suppress(IndexError):
            self._line[0].look_soon()

    def fail(self, error: LimiterError, limiter: MachineLimiter | None = None) -> None:
        """Raise an error in all waiting callers, or in those of one event loop."""
        with self._lock:
            stay: deque[_Waiter] = deque()
            for waiter in self._line:
                if limiter is None or waiter.limiter is limiter:
                    waiter.fail(error)
                else:
                    stay.append(waiter)
            self._line = stay

    def state(self) -> MachineState | None:
        """Return the state of the limiter, None if no process uses it. This may block."""
        return self._inside(SlotFile.state)

    def resize(self, rate_limit: int) -> int | None:
        """Set the limit; return what it was, None if no process uses the limiter.

        This may block.
        """

        def set_limit(file: SlotFile) -> int:
            rules = file.read()
            before = rules.settings
            _configure(file, rules, replace(before, rate_limit=rate_limit))
            return before.rate_limit

        return self._inside(set_limit)

    def forget(self) -> None:
        """In a forked child: the slots are the parent's."""
        file = self._file
        while file is not None:
            file.close()
            file = file.predecessor

    def _look(self, file: SlotFile, wanted: int, *, polite: bool) -> list[int]:
        """Take up to so many slots that are free."""
        now = time.monotonic()
        if not polite and file.announces_waiting and not self._last_look.is_outdated(file, now):
            return []
        with file.gate() as entered:
            if not entered:
                return []
            assert self._settings is not None, "agree comes first"
            rules = file.attach(self._settings, now)
            rules.adapt(now, *self._take_counts())
            taken: list[int] = []
            if not (polite and file.others_wait()):
                paced = rules.settings.per_second is not None
                self._last_look = _Look(now, file.last_release, paced)
                taken = file.take(rules, wanted, now)
            try:
                file.announce_waiting(len(self._line) > len(taken))
                file.write(rules)
            except OSError:
                for slot in taken:
                    file.release(slot)
                raise
        return taken

    def _take_counts(self) -> tuple[int, int]:
        """Return how many attempts have succeeded and were throttled since the last time."""
        succeeded = self._succeeded
        throttled = self._throttled
        self._succeeded -= succeeded
        self._throttled -= throttled
        return succeeded, throttled

    def _hand_over(self, file: SlotFile, slot: int) -> None:
        while self._line:
            if self._line.popleft().grant(file, slot):
                return
        file.release(slot)

    def _current_file(self) -> SlotFile:
        """Return the file, which is opened again if somebody has removed it.

        Permits of the removed file count as long as they are out.
        """
        if self._file is None or not self._file.is_current:
            self._file = SlotFile(slot_path(self.name), predecessor=self._file)
        return self._file

    def _inside(self, work: Callable[[SlotFile], T]) -> T | None:
        """Do something with the file of a limiter that is in use, when no other process does."""
        end = time.monotonic() + _COMMAND_SECONDS
        with _AsLimiterError(self.name):
            if self._file is None and not slot_path(self.name).exists():
                return None
            while time.monotonic() < end:
                with self._lock:
                    file = self._current_file()
                    with file.gate() as entered:
                        if entered:
                            return work(file) if file.is_used() else None
                time.sleep(LOOK_SECONDS)
        raise LimiterUnreachable(
            f"limiter {self.name!r} of this host: a process that uses it was stopped at a bad "
            "moment; continue or kill it"
        )


class _Look(NamedTuple):
    """When this process last looked through the slots, and what it saw."""

    at: float = -math.inf
    last_release: bytes = b""
    paced: bool = False

    def is_outdated(self, file: SlotFile, now: float) -> bool:
        """May another look find a slot?"""
        return (
            self.paced
            or now - self.at >= DEATH_SECONDS
            or file.has_new_release(since=self.last_release)
        )


class _AsLimiterError:
    """Turns an error of the system, such as a full disk, into one that says what to do."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, OSError):
            place = f"{error.filename}: " if error.filename else ""
            room = "make room, or " if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
            raise LimiterError(
                f"limiter {self._name!r} of this host: {place}{error.strerror or error}; "
                f"{room}set {FOLDER} to a folder of yours on a local disk"
            ) from error
        if isinstance(error, ConfigError):
            raise LimiterError(str(error)) from error


class _Waiter:
    """A caller that waits for a slot."""

    def __init__(self, limiter: MachineLimiter, permit: SlotPermit) -> None:
        self.limiter = limiter
        self._permit = ref(permit)
        self._loop = asyncio.get_running_loop()
        self.granted: asyncio.Future[None] = self._loop.create_future()

    @property
    def is_gone(self) -> bool:
        return self.granted.done() or self._permit() is None or self._loop.is_closed()

    def grant(self, file: SlotFile, slot: int) -> bool:
        """Give the caller a slot; False if it is gone."""
        permit = self._permit()
        if permit is None or self.is_gone:
            return False
        # The permit owns the slot before its caller runs: if the loop ends now, it returns.
        permit.own(file, slot)
        if self._soon(self._accept, permit):
            return True
        permit.disown()
        return False

    def fail(self, error: LimiterError) -> None:
        """Raise an error in the caller."""
        self._soon(self.refuse, error)

    def look_soon(self) -> None:
        """Look for a slot in the waiter's loop: one has just been released."""
        self._soon(self.limiter.look, True)

    def refuse(self, error: LimiterError) -> None:
        """Raise an error in the caller; called in its loop."""
        if not self.granted.done():
            self.granted.set_exception(error)

    def _accept(self, permit: SlotPermit) -> None:
        if self.granted.done():
            permit.give_up()  # the caller was cancelled, or its time was over
        else:
            self.granted.set_result(None)

    def _soon(self, work: Callable[[T], None], value: T) -> bool:
        try:
            self._loop.call_soon_threadsafe(work, value)
        except RuntimeError:  # the loop was closed
            return False
        return True


_numbers = itertools.count(1)


class SlotPermit(Permit["MachineLimiter"]):
    """A permit of a machine's limiter; if nobody refers to it any more, its slot returns."""

    __slots__ = ("_file", "_slot")

    def __init__(self, limiter: MachineLimiter, timeout: float | None) -> None:
        super().__init__(limiter, timeout)
        self._file: SlotFile | None = None
        self._slot = -1

    async def __aenter__(self) -> Self:
        taken = self._limiter._take()
        if taken is not None:
            self.own(*taken)
            return self
        loop = asyncio.get_running_loop()
        since = loop.time()
        try:
            await self._limiter._wait(self, self._timeout)
        except BaseException:
            self.give_up()
            raise
        finally:
            self.waited = loop.time() - since
        return self

    async def __aexit__(self, *_: object) -> None:
        self.give_up()

    def own(self, file: SlotFile, slot: int) -> None:
        """Hold this slot from now on; called in any thread."""
        self.id = f"{os.getpid()}-{next(_numbers)}"
        self._slot = slot
        self._file = file
        self._limiter._permits.add(self)

    def disown(self) -> None:
        """Hold no slot any more, without returning it."""
        self._file = None
        self._limiter._permits.discard(self)

    def give_up(self) -> None:
        """Return the slot, if there is one."""
        file = self._file
        if file is not None:
            self.disown()
            self._limiter._slots.release(
                file, self._slot, succeeded=self._succeeded, throttled=self._throttled
            )

    def __del__(self) -> None:
        self.give_up()


class MachineLimiter(LoopResource):
    """The permits of a machine's limiter for the callers of one event loop."""

    def __init__(
        self, slots: MachineSlots, settings: LimiterSettings, *, apply: bool = False
    ) -> None:
        check_size(settings)
        self._slots = slots
        self._settings = settings
        self._apply = apply
        self._agreed = False
        self._permits: WeakSet[SlotPermit] = WeakSet()
        self._waiting = 0
        self._scope: LoopScope | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def permit(self, timeout: float | None = None) -> SlotPermit:
        """Return a permit to enter: ``async with limiter.permit(timeout) as permit``.

        Entering waits for a slot and raises PermitTimeout after ``timeout`` seconds. It raises
        LimiterError if the file of the limiter cannot be used.
        """
        return SlotPermit(self, timeout)

    @property
    def held(self) -> int:
        """The number of permits that callers of this loop hold."""
        return len(self._permits)

    @property
    def waiting(self) -> int:
        """The number of callers of this loop that wait for a permit."""
        return self._waiting

    async def aclose(self) -> None:
        """End: waiting callers get LimiterClosed, permits return."""
        self.abandon()

    def abandon(self) -> None:
        """End without the loop, which may be closed."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._slots.fail(LimiterClosed("this limiter was closed while a caller waited"), self)
        for permit in list(self._permits):
            permit.give_up()
        # Other processes must not be polite to callers that are gone.
        with suppress(LimiterError):
            self._slots.serve(polite=True)
        if self._scope is not None:
            self._scope.drop(self)
            self._scope = None

    def look(self, polite: bool) -> None:
        """Serve the line, and look again later as long as somebody in this loop waits."""
        if self._closed:
            return
        began = time.monotonic()
        try:
            if self._has_agreed():
                self._slots.serve(polite=polite)
        except LimiterError as error:
            self._slots.fail(error)
        took = time.monotonic() - began
        if not polite:
            self._timer = None
            if self._waiting:
                self._plan_look(max(LOOK_SECONDS, took / LOOKING_SHARE))

    def _take(self) -> tuple[SlotFile, int] | None:
        """Return a slot that is free, unless somebody waits; this needs no turn of the loop."""
        if self._closed:
            raise LimiterClosed("this limiter was closed")
        if self._scope is None:
            self._scope = runtime.scope()
            self._scope.adopt(self)
        return self._slots.take() if self._has_agreed() else None

    async def _wait(self, permit: SlotPermit, timeout: float | None) -> None:
        """Return when the permit has a slot."""
        loop = asyncio.get_running_loop()
        waiter = _Waiter(self, permit)
        deadline: asyncio.TimerHandle | None = None
        if timeout is not None:
            error = PermitTimeout(f"no permit within {timeout:g} s")
            deadline = loop.call_later(timeout, waiter.refuse, error)
        self._slots.join(waiter)
        self._waiting += 1
        try:
            if self._timer is None:
                self._plan_look(LOOK_SECONDS)
            await waiter.granted
        finally:
            self._waiting -= 1
            waiter.granted.cancel()
            if deadline is not None:
                deadline.cancel()

    def _has_agreed(self) -> bool:
        """Have these settings been compared with those in force? It is done once."""
        if not self._agreed:
            self._agreed = self._slots.agree(self._settings, apply=self._apply)
        return self._agreed

    def _plan_look(self, seconds: float) -> None:
        # Processes that began together must not go on looking together.
        pause = seconds * random.uniform(0.5, 1.5)
        self._timer = asyncio.get_running_loop().call_later(pause, self.look, False)


def _configure(file: SlotFile, rules: Rules, settings: LimiterSettings) -> None:
    check_size(settings)
    rules.configure(settings, time.monotonic())
    file.write(rules)


_all_slots: WeakSet[MachineSlots] = WeakSet()


def machine_slots(name: str) -> MachineSlots:
    """Return this process's part of the limiter: the same file is never opened twice."""
    path = os.path.realpath(slot_path(name))
    return runtime.shared((MachineSlots, path), lambda: MachineSlots(name))


def machine_limiter(settings: LimiterSettings, name: str, *, apply: bool = False) -> MachineLimiter:
    """Return the machine's limiter of that name, for use within one event loop."""
    return MachineLimiter(machine_slots(name), settings, apply=apply)


def _forget() -> None:
    for slots in _all_slots:
        slots.forget()


os.register_at_fork(after_in_child=_forget)
