"""Watches one program until it ends or exceeds its time or a bound; then reports it and kills all its processes."""

from __future__ import annotations

import errno
import os
import select
import signal
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn, Protocol

from .attributes import Attributes
from .census import Census, tasks
from .memory import Memory, TooLongError
from .spec import CommandReport, ResourceBounds

TICK = 0.02
"""Seconds between two counts of the processes, which limits a fork bomb."""
MEMORY_EVERY = 4
"""Ticks between two measurements of the memory, which take longer."""
MEASUREMENTS = 5
"""How often memory is measured at one time before a program with processes that end meanwhile is killed for it."""
GRACE = 0.02
GRACE_LOOKS = 5
FEW = 4
"""Seconds, and checks in that time, for a few processes to end by themselves after the program."""


class Supervisor:
    def __init__(
        self,
        program: GuardedProgram,
        control: int,
        bounds: ResourceBounds,
        census: Census | None,
        memory: Memory | None,
        attributes: Attributes | None,
    ) -> None:
        """Watch a program; end it when the other end of `control` is closed.

        Without a census and a measure of memory, which only Linux has, these are not bounded.
        """
        self._program = program
        self._control = control
        self._bounds = bounds
        self._census = census
        self._memory = memory
        self._attributes = attributes

    def watch(self, timeout: float) -> CommandReport:
        """Wait for the end and return the report; child processes of the program are still alive then."""
        started = time.monotonic()
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        ended = self._program.ended
        if ended is not None:
            poller.register(ended, select.POLLIN)
        if self._attributes is not None:
            poller.register(self._attributes.listener, select.POLLIN)
        ticks = 0
        counted = started
        while True:
            left = timeout - (time.monotonic() - started)
            ready = poller.poll(max(min(left, TICK if ended is not None else TICK / 4), 0) * 1000)
            for fd, event in ready:
                if self._attributes is not None and fd == self._attributes.listener:
                    if event & select.POLLIN:
                        self._attributes.handle()
                    if event & select.POLLHUP:
                        poller.unregister(fd)
            code = self._program.exit_code()
            elapsed = time.monotonic() - started
            if code is not None:
                return CommandReport("exited", elapsed, code, leftovers=self._leftovers())
            if any(fd == self._control for fd, _ in ready):
                return CommandReport("stopped", elapsed)
            if elapsed >= timeout:
                return CommandReport("timeout", elapsed, leftovers=0)
            if time.monotonic() - counted < TICK and ready:
                continue  # a call was handled, which a program may repeat without end
            counted = time.monotonic()
            ticks += 1
            broken = self._broken_bound(ticks)
            if broken:
                return CommandReport("exited", elapsed, -int(signal.SIGKILL), bound=broken)

    def _leftovers(self) -> int:
        """Count leftover processes; those that are about to end get a moment to do so."""
        for _ in range(GRACE_LOOKS):
            left = len(self._census.members()) if self._census is not None else 0
            if not left or left > FEW:
                break
            time.sleep(GRACE / GRACE_LOOKS)
        return left

    def _broken_bound(self, ticks: int) -> str:
        if self._census is None or self._memory is None:
            return ""
        bounds = self._bounds
        look_at_memory = ticks % MEMORY_EVERY == 0
        if not (self._census.may_exceed(min(bounds.processes, bounds.tasks)) or look_at_memory):
            return ""
        pids = self._census.members()
        if len(pids) > bounds.processes:
            return f"more than {bounds.processes} processes"
        if tasks(pids) > bounds.tasks:
            return f"more than {bounds.tasks} threads"
        try:
            if look_at_memory and self._uses_too_much(self._census, self._memory, pids):
                return f"more than {bounds.memory // 2**20} MiB of memory"
        except TooLongError:
            return "more mappings and open files than the guard can measure"
        return ""

    def _uses_too_much(self, census: Census, memory: Memory, pids: list[int]) -> bool:
        """Measure the memory; again if a process ended meanwhile, whose share was counted for the others, too."""
        for _ in range(MEASUREMENTS):
            if memory.used(pids, self._bounds.memory) <= self._bounds.memory:
                return False
            before, pids = pids, census.members()
            if set(before) <= set(pids):
                break
        return True


class GuardedProgram(Protocol):
    """Tells whether the program has ended."""

    @property
    def ended(self) -> int | None:
        """A descriptor that becomes readable at the end, if the system has one."""

    def exit_code(self) -> int | None:
        """Return its exit code, negative for a signal; None while it runs."""


class ChildProgram:
    """A program that is a child of this process, which also inherits the program's orphans."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._code: int | None = None
        self.ended = _end_of(pid)

    def exit_code(self) -> int | None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == self._pid:
                    self._code = os.waitstatus_to_exitcode(status)
        return self._code


class NamespaceProgram:
    """A program in a namespace, whose first process sends the exit code."""

    def __init__(self, ended: int) -> None:
        os.set_blocking(ended, False)
        self.ended: int | None = ended

    def exit_code(self) -> int | None:
        try:
            message = os.read(self.ended or 0, STATUS.size)
        except BlockingIOError:
            return None
        return int(STATUS.unpack(message)[0]) if message else -int(signal.SIGKILL)


STATUS = struct.Struct("!i")


def run_init(program: int, ended: int) -> NoReturn:
    """Be the first process of a namespace: adopt orphans, send the program's exit code, and wait to be killed."""
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            signal.pause()  # with this process, the kernel ends the namespace
            continue
        if pid == program:
            os.write(ended, STATUS.pack(os.waitstatus_to_exitcode(status)))


def _end_of(pid: int) -> int | None:
    """Return a descriptor that becomes readable when the process ends, if the system supports it."""
    opener: Callable[[int], int] | None = getattr(os, "pidfd_open", None)
    if opener is None:
        return None
    try:
        return opener(pid)
    except OSError:
        return None


def end_namespace(init: int) -> None:
    """Kill the first process of a namespace, a child of this one, and wait: the kernel kills all others with it."""
    if init <= 1:
        raise RuntimeError(f"{init} is not the first process of a namespace: nothing was killed")
    _kill(init)
    os.waitpid(init, 0)


def end_everything(census: Census | None, group: int) -> None:
    """Kill the program's process group and all descendants of this process, until none is left."""
    if group <= 1:
        raise RuntimeError(f"{group} is not a program's process group: nothing was killed")
    while True:
        _kill(-group)
        for pid in census.members() if census else ():
            # Stop them first, so that they start nothing new while the others are being killed.
            _kill(pid, signal.SIGSTOP)
        for pid in census.members() if census else ():
            _kill(pid)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.001)


def _kill(pid: int, number: int = signal.SIGKILL) -> None:
    try:
        os.kill(pid, number)
    except OSError as exc:
        if exc.errno not in (errno.ESRCH, errno.EPERM):
            raise
