"""The supervisor kills a program that passes a bound, also one that it cannot measure."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys

import pytest

from sfusion.fakes.sandbox.executors.python.guard import census, memory
from sfusion.fakes.sandbox.executors.python.guard.spec import ResourceBounds
from sfusion.fakes.sandbox.executors.python.guard.supervise import Supervisor
from tests.fakes.sandbox.executors.conftest import on_linux

pytestmark = on_linux


class Endless:
    ended = None

    def exit_code(self) -> int | None:
        return None


class ThisProcess:
    def members(self) -> list[int]:
        return [os.getpid()]

    def may_exceed(self, limit: int) -> bool:
        return True


@pytest.mark.parametrize(
    ("longest", "bound", "broken"),
    [
        (memory.LONGEST, 2**20, "more than 1 MiB of memory"),
        (-1.0, 2**50, "more mappings and open files than the guard can measure"),
    ],
)
def test_a_program_is_killed_for_its_memory_or_if_that_takes_too_long_to_measure(
    longest: float, bound: int, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "LONGEST", longest)
    control, ours = socket.socketpair()
    with control, ours:
        measured = memory.Memory(private_shm=False, owner=None)
        bounds = ResourceBounds(memory=bound)
        report = Supervisor(Endless(), control.fileno(), bounds, ThisProcess(), measured, None).watch(60.0)
    assert (report.event, report.code, report.bound) == ("exited", -signal.SIGKILL, broken)


SHARED_BY_FOUR = """import os, sys
kept = b"x" * 60_000_000
children = [os.fork() or sys.exit(sys.stdin.read()) for _ in range(3)]
print(os.getpid(), *children, flush=True)
sys.stdin.read()
"""


def test_a_program_whose_processes_end_while_memory_is_measured_is_not_killed_for_what_they_shared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipe = subprocess.PIPE
    control, ours = socket.socketpair()
    with control, ours, subprocess.Popen([sys.executable, "-c", SHARED_BY_FOUR], stdin=pipe, stdout=pipe) as sharing:
        assert sharing.stdout is not None
        pids = [int(pid) for pid in sharing.stdout.readline().split()]
        ended = False

        class Sharing:
            def members(self) -> list[int]:
                return [pid for pid in pids if census._alive(pid)]

            def may_exceed(self, limit: int) -> bool:
                return False

        class EndsOnceMeasured:
            ended = None

            def exit_code(self) -> int | None:
                return 0 if ended else None

        measured = memory.Memory(private_shm=False, owner=None)
        look_at_files = measured._files

        def end_and_look_at_files(now: list[int]) -> dict[tuple[int, int], int]:
            nonlocal ended
            for pid in pids[1:] if not ended else ():
                end = os.pidfd_open(pid)
                os.kill(pid, signal.SIGKILL)
                select.select([end], [], [])
                os.close(end)
            ended = True
            return look_at_files(now)

        monkeypatch.setattr(measured, "_files", end_and_look_at_files)
        bounds = ResourceBounds(memory=150 * 2**20)
        report = Supervisor(EndsOnceMeasured(), control.fileno(), bounds, Sharing(), measured, None).watch(60.0)
        sharing.kill()
    assert (report.event, report.code, report.bound) == ("exited", 0, "")
