"""Watches one program until it ends or exceeds its time or a bound; then reports it and kills all its processes."""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from collections.abc import Callable

from . import census
from .spec import CommandReport, ResourceBounds

TICK = 0.02
"""Seconds between two counts of the processes, which limits a fork bomb."""
MEMORY_EVERY = 4
"""Ticks between two measurements of the memory, which take longer."""
GRACE = 0.02
GRACE_LOOKS = 5
FEW = 4
"""Seconds, and checks in that time, for a few processes to end by themselves after the program."""


class Supervisor:
    def __init__(
        self, program: int, control: int, bounds: ResourceBounds, members: Callable[[], list[int]] | None
    ) -> None:
        """Watch `program`; end it when the other end of `control` is closed.

        `members` lists the processes of the program; None if the system cannot list them.
        """
        self._program = program
        self._control = control
        self._bounds = bounds
        self._members = members
        self._status: int | None = None
        self._seen_pid = -1

    def watch(self, timeout: float) -> CommandReport:
        """Wait for the end and return the report; child processes of the program are still alive then."""
        started = time.monotonic()
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        ended = _end_of(self._program)
        if ended is not None:
            poller.register(ended, select.POLLIN)
        ticks = 0
        while True:
            left = timeout - (time.monotonic() - started)
            ready = poller.poll(max(min(left, TICK if ended is not None else TICK / 4), 0) * 1000)
            ticks += 1
            self._reap()
            elapsed = time.monotonic() - started
            if self._status is not None:
                code = os.waitstatus_to_exitcode(self._status)
                return CommandReport("exited", elapsed, code, leftovers=self._leftovers())
            if any(fd == self._control for fd, _ in ready):
                return CommandReport("stopped", elapsed)
            if elapsed >= timeout:
                return CommandReport("timeout", elapsed, leftovers=0)
            broken = self._broken_bound(ticks)
            if broken:
                return CommandReport("exited", elapsed, -int(signal.SIGKILL), bound=broken)

    def _leftovers(self) -> int:
        """Count leftover processes; those that are about to end get a moment to do so."""
        for _ in range(GRACE_LOOKS):
            left = len(self._members()) if self._members is not None else 0
            if not left or left > FEW:
                break
            time.sleep(GRACE / GRACE_LOOKS)
        return left

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._program:
                self._status = status

    def _broken_bound(self, ticks: int) -> str:
        if self._members is None:
            return ""
        newest = census.last_pid()
        started_something = newest != self._seen_pid
        self._seen_pid = newest
        look_at_memory = ticks % MEMORY_EVERY == 0
        # Process ids of a namespace start at 1: if the last one is small, there cannot be many processes.
        look_at_processes = started_something and newest > min(self._bounds.processes, self._bounds.tasks)
        if not (look_at_memory or look_at_processes):
            return ""
        pids = self._members()
        if len(pids) > self._bounds.processes:
            return f"more than {self._bounds.processes} processes"
        if census.tasks(pids) > self._bounds.tasks:
            return f"more than {self._bounds.tasks} threads"
        if look_at_memory and census.memory(pids, self._bounds.memory) > self._bounds.memory:
            return f"more than {self._bounds.memory // 2**20} MiB of memory"
        return ""


def _end_of(pid: int) -> int | None:
    """Return a descriptor that becomes readable when the process ends, if the system supports it."""
    opener: Callable[[int], int] | None = getattr(os, "pidfd_open", None)
    if opener is None:
        return None
    try:
        return opener(pid)
    except OSError:
        return None


def end_namespace() -> None:
    """Kill every process of the namespace; this process must be its first.

    In any other process, the same call would kill every process of this user.
    """
    if os.getpid() != 1:
        raise RuntimeError("not the first process of a namespace: nothing was killed")
    _kill(-1)


def end_everything(members: Callable[[], list[int]] | None, group: int) -> None:
    """Kill the program's process group and all descendants of this process, until none is left."""
    if group <= 1:
        raise RuntimeError(f"{group} is not a program's process group: nothing was killed")
    while True:
        _kill(-group)
        for pid in members() if members else ():
            # Stop them first, so that they start nothing new while the others are being killed.
            _kill(pid, signal.SIGSTOP)
        for pid in members() if members else ():
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
