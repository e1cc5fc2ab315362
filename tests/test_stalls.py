"""The tool that stops processes while tests run leaves those alone that the tests stop."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.stalls import is_stopped, stopped


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "300"]) as process:
        yield process
        process.kill()


def wait_until_stopped(process: subprocess.Popen[bytes]) -> None:
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)


def test_a_process_goes_on_after_its_stop(process: subprocess.Popen[bytes]) -> None:
    with stopped(process.pid):
        wait_until_stopped(process)
    os.waitid(os.P_PID, process.pid, os.WCONTINUED)


def test_what_a_test_stops_meanwhile_stays_stopped(process: subprocess.Popen[bytes]) -> None:
    """It was continued, and a test of Ray failed since its stopped node started a worker."""
    with stopped(process.pid):
        wait_until_stopped(process)
        process.send_signal(signal.SIGSTOP)
    assert is_stopped(process.pid)


def test_what_a_test_has_stopped_stays_stopped(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSTOP)
    wait_until_stopped(process)
    with stopped(process.pid):
        pass
    assert is_stopped(process.pid)
