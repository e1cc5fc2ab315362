"""The event log: its files, their bounds, and that no failure of it reaches a call."""

from __future__ import annotations

import errno
import logging
import os
import threading
from pathlib import Path

import pytest

from sfusion_tools import event_log
from sfusion_tools.event_log import (
    EventLog,
    EventLogSettings,
    Facts,
    flush_event_logs,
    open_event_log,
)
from tests.patience import PATIENCE

KB = 1 / 1024
OPENING = '{"event_log":'


def make(folder: Path, **settings: float) -> EventLog:
    return open_event_log(EventLogSettings(path=str(folder / "events.ndjson"), **settings))


def written(folder: Path) -> list[str]:
    return [line for path in sorted(folder.glob("*")) for line in path.read_text().splitlines()]


def queue(log: EventLog, line: str) -> None:
    log.add((_encoded, line), len(line))


def _encoded(worker: str, facts: Facts) -> bytes:
    return facts[1].encode()


def write_one(log: EventLog, line: str) -> None:
    queue(log, line)
    log.flush()


def test_lines_go_to_a_file_of_this_process(tmp_path):
    log = make(tmp_path / "new" / "folder")
    queue(log, "one\n")
    queue(log, "two\n")
    assert not (tmp_path / "new").exists()
    flush_event_logs()
    (path,) = (tmp_path / "new" / "folder").iterdir()
    assert path.name == f"events.{log.worker}-001.ndjson"
    assert path.name.endswith(f"-{os.getpid()}-001.ndjson")
    assert path.read_text() == "one\ntwo\n"


def test_a_folder_is_given_a_name_for_its_files(tmp_path):
    for path in (str(tmp_path), f"{tmp_path}/not-yet/"):
        log = open_event_log(EventLogSettings(path=path))
        write_one(log, "x\n")
        assert (Path(path) / f"events.{log.worker}-001.ndjson").exists()


def test_tools_with_the_same_settings_share_a_log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert make(tmp_path) is make(tmp_path)
    assert open_event_log(EventLogSettings(path="events.ndjson")) is not make(tmp_path)
    assert make(tmp_path) is not make(tmp_path, max_file_mb=1)


def test_files_are_rotated_and_the_oldest_deleted(tmp_path):
    other = tmp_path / "events.elsewhere-17-001.ndjson"
    other.write_text(f"{OPENING}{'o' * 1024}\n")
    os.utime(other, (1, 1))
    log = make(tmp_path, max_file_mb=KB, max_total_mb=3 * KB)
    for number in range(20):
        line = f"{OPENING}{number:02}"
        write_one(log, f"{line}{'x' * (511 - len(line))}\n")
        assert sum(path.stat().st_size for path in tmp_path.glob("events.*")) <= 3 * 1024
    assert not other.exists()
    kept = [line.removeprefix(OPENING)[:2] for line in written(tmp_path)]
    assert kept == ["14", "15", "16", "17", "18", "19"]
    assert log.dropped == 0


@pytest.mark.parametrize(
    "name",
    [
        "events.2026-11-15.ndjson",
        "events.eval.vm-1-001.ndjson",
        "events.vm-1-001.ndjson.bak",
        "events.vm-one-001.ndjson",
        "events-vm-1-001.ndjson",
    ],
)
def test_files_of_another_name_are_never_deleted(tmp_path, name):
    precious = tmp_path / name
    precious.write_text(f"{OPENING}{'o' * 5000}\n")
    write_one(make(tmp_path, max_file_mb=KB, max_total_mb=KB), "x\n")
    assert precious.exists()


def test_only_files_of_event_lines_are_deleted(tmp_path):
    notes = tmp_path / "events.2026-11-015.ndjson"
    notes.write_text("my notes\n" * 500)
    link, pipe = tmp_path / "events.vm-1-001.ndjson", tmp_path / "events.vm-1-002.ndjson"
    link.symlink_to(notes)
    os.mkfifo(pipe)
    write_one(make(tmp_path, max_file_mb=KB, max_total_mb=KB), "x\n")
    assert {notes, link, pipe} <= set(tmp_path.iterdir())


def test_a_file_that_was_removed_is_replaced(tmp_path):
    log = make(tmp_path)
    write_one(log, "gone\n")
    next(tmp_path.iterdir()).unlink()
    write_one(log, "kept\n")
    assert written(tmp_path) == ["kept"]


def test_a_name_that_is_taken_is_never_written_to(tmp_path):
    log = make(tmp_path / "logs")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / f"events.{log.worker}-001.ndjson").symlink_to(tmp_path / "victim")
    write_one(log, "x\n")
    assert not (tmp_path / "victim").exists()
    assert (tmp_path / "logs" / f"events.{log.worker}-002.ndjson").read_text() == "x\n"


def test_a_full_disk_is_logged_once_and_lines_stay_whole(tmp_path, monkeypatch, caplog):
    log = make(tmp_path)
    real, room = os.write, [4, 3]

    def write(file: int, data: memoryview) -> int:
        if not room:
            return real(file, data)
        left = room.pop(0)
        if left == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(file, data[:left])

    monkeypatch.setattr(event_log.os, "write", write)
    write_one(log, "torn line\n")
    write_one(log, "whole\n")
    queue(log, "last\n")
    log.flush()
    assert written(tmp_path) == ["torn", "whole", "last"]
    assert log.dropped == 1
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "No space left" in caplog.text


@pytest.mark.parametrize(
    "name", ["file/events.ndjson", "a\0b.ndjson", "file/~nobody-here/", "x" * 300, "x" * 300 + "/"]
)
def test_a_path_that_cannot_be_written_does_not_raise(tmp_path, caplog, name):
    (tmp_path / "file").write_text("")
    log = open_event_log(EventLogSettings(path=f"{tmp_path}/{name}"))
    write_one(log, "x\n")
    write_one(log, "y\n")
    assert log.dropped == 2
    assert len(caplog.records) == 1


def test_a_working_directory_that_is_gone_does_not_raise(tmp_path, monkeypatch, caplog):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    log = open_event_log(EventLogSettings(path="logs/events.ndjson"))
    write_one(log, "x\n")
    assert (log.dropped, len(caplog.records)) == (1, 1)


def test_a_line_that_cannot_be_made_is_dropped(tmp_path):
    log = make(tmp_path)
    queue(log, "one\n")
    log.add((_encoded,))
    queue(log, "two\n")
    log.flush()
    assert written(tmp_path) == ["one", "two"]
    assert log.dropped == 1


def test_the_queue_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(event_log, "MOST_QUEUED", 10)
    log = make(tmp_path)
    for _ in range(8):
        queue(log, "12345\n")
    log.flush()
    assert written(tmp_path) == ["12345"] * 2
    assert log.dropped == 6
    write_one(log, "again\n")
    assert written(tmp_path)[-1] == "again"


def test_lines_are_written_regularly_without_a_flush(tmp_path, monkeypatch):
    monkeypatch.setattr(event_log, "INTERVAL", 0.001)
    log, flushed = make(tmp_path), threading.Event()
    real = log.flush
    monkeypatch.setattr(log, "flush", lambda: (real(), flushed.set()))
    queue(log, "x\n")
    log.start()
    log.start()
    assert flushed.wait(PATIENCE)
    assert written(tmp_path) == ["x"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_writes_its_own_lines_to_its_own_file(tmp_path):
    log = make(tmp_path)
    write_one(log, "before\n")
    queue(log, "of the parent\n")
    pid = os.fork()
    if pid == 0:
        try:
            queue(log, "of the child\n")
            flush_event_logs()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    log.flush()
    by_process = {path.name.split("-")[-2]: path.read_text() for path in tmp_path.iterdir()}
    assert by_process == {str(os.getpid()): "before\nof the parent\n", str(pid): "of the child\n"}


def test_the_environment_names_a_path(monkeypatch):
    monkeypatch.delenv("SFUSION_EVENT_LOG", raising=False)
    assert EventLogSettings.of_environment() is None
    monkeypatch.setenv("SFUSION_EVENT_LOG", "/logs/events.ndjson")
    assert EventLogSettings.of_environment() == EventLogSettings(path="/logs/events.ndjson")
