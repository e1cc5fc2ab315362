"""The supervisor kills a program that passes a bound, also one that it cannot measure."""

from __future__ import annotations

import os
import signal
import socket

import pytest

from sfusion.fakes.sandbox.executors.python.guard import memory
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
