"""An owner is distinguished from every other process, and is dead only if that is certain."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sfusion.harness.real.targets.owner import Owner
from sfusion_tools.hosts import start_of

HERE = Owner.here()
GONE = replace(HERE, pid=HERE.pid, started="1")


def test_labels_survive_a_round_trip_and_invalid_ones_are_rejected() -> None:
    assert Owner.read(HERE.label()) == HERE
    for nonsense in (
        "",
        "{}",
        "[]",
        "3",
        "null",
        '{"pid": 1}',
        HERE.label().replace(str(HERE.pid), '"1"'),
    ):
        assert Owner.read(nonsense) is None, nonsense


def test_a_running_process_is_alive() -> None:
    assert HERE.is_alive(HERE, running=True) is True
    assert HERE.is_alive(HERE, running=False) is True, (
        "it may have killed its container and revive it later"
    )


def test_a_reused_pid_is_not_the_owner() -> None:
    assert GONE.is_alive(HERE, running=True) is False


def test_a_process_that_ended_is_dead_even_as_a_zombie() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = replace(HERE, pid=child.pid, started=start_of(child.pid) or "")
    assert owner.is_alive(HERE, running=True) is True
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie now
    assert owner.is_alive(HERE, running=True) is False
    child.communicate()
    assert owner.is_alive(HERE, running=True) is False


@pytest.mark.parametrize("owner", [replace(GONE, host="other"), replace(GONE, namespace="pid:[1]")])
def test_an_owner_that_is_not_visible_from_here_is_not_judged(owner: Owner) -> None:
    assert owner.is_alive(HERE, running=True) is None
    assert owner.is_alive(HERE, running=False) is None


def test_owners_from_before_the_last_boot_are_dead() -> None:
    before = replace(HERE, boot="another")
    assert before.is_alive(HERE, running=False) is False
    assert before.is_alive(HERE, running=True) is None, "perhaps a machine cloned from this one"


def test_without_proc_the_start_time_comes_from_ps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", _no_such_file)
    monkeypatch.setattr(Path, "exists", lambda _: False)
    first = start_of(os.getpid())
    assert first
    assert first == start_of(os.getpid())
    assert start_of(2**22 + 1) is None


def _no_such_file(*_: object, **__: object) -> str:
    raise FileNotFoundError
