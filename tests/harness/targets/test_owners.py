"""A container's owner is told from every other process, and found dead only when it surely is."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sfusion.harness.targets.owner import Owner, start_of

HERE = Owner.here()
GONE = replace(HERE, pid=HERE.pid, started="1")


def test_the_label_says_it_all_and_nothing_else_is_read() -> None:
    assert Owner.read(HERE.label()) == HERE
    for nonsense in ("", "{}", "[]", "3", "null", '{"pid": 1}', HERE.label().replace(str(HERE.pid), '"1"')):
        assert Owner.read(nonsense) is None, nonsense


def test_a_living_process_lives() -> None:
    assert HERE.is_alive(HERE, running=True) is True
    assert HERE.is_alive(HERE, running=False) is True, "it may have killed its container and mean to revive it"


def test_another_process_with_the_same_number_is_not_the_owner() -> None:
    assert GONE.is_alive(HERE, running=True) is False


def test_a_process_that_ended_is_gone_also_before_its_parent_looks() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = replace(HERE, pid=child.pid, started=start_of(child.pid) or "")
    assert owner.is_alive(HERE, running=True) is True
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie now
    assert owner.is_alive(HERE, running=True) is False
    child.communicate()
    assert owner.is_alive(HERE, running=True) is False


@pytest.mark.parametrize("owner", [replace(GONE, host="other"), replace(GONE, namespace="pid:[1]")])
def test_what_cannot_be_seen_from_here_is_not_judged(owner: Owner) -> None:
    assert owner.is_alive(HERE, running=True) is None
    assert owner.is_alive(HERE, running=False) is None


def test_before_the_last_boot_nobody_lives_and_no_container_runs() -> None:
    before = replace(HERE, boot="another")
    assert before.is_alive(HERE, running=False) is False
    assert before.is_alive(HERE, running=True) is None, "a machine cloned from this one, perhaps"


def test_without_proc_the_system_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", _no_such_file)
    monkeypatch.setattr(Path, "exists", lambda _: False)
    first = start_of(os.getpid())
    assert first
    assert first == start_of(os.getpid())
    assert start_of(2**22 + 1) is None


def _no_such_file(*_: object, **__: object) -> str:
    raise FileNotFoundError
