"""Reading logs of any kind: which files, which lines, and what is said about those that cannot be read."""

from __future__ import annotations

import gzip
import json
import os

import pytest

from sfusion.harness.errors import LogError
from sfusion.harness.logs import reading
from sfusion.harness.logs.reading import LogReader, read_records


def line(call: str) -> str:
    return json.dumps({"event_log": 1, "call": call, "began": 5.0}) + "\n"


def calls(*paths: object) -> list[str]:
    return [record.call for record in read_records(paths)]  # type: ignore[arg-type]


def test_files_and_folders_are_read_in_order(tmp_path):
    (tmp_path / "b.ndjson").write_text(line("c2"))
    (tmp_path / "a.log").write_text(line("c1"))
    (tmp_path / "notes.txt").write_text("not a log")
    other = tmp_path / "other"
    other.write_text(line("c3") + "\n" + line("c4"))
    assert calls(tmp_path, str(other)) == ["c1", "c2", "c3", "c4"]


def test_files_of_other_kinds_in_a_folder_are_passed_over(tmp_path):
    (tmp_path / "app.log").write_text("hello\n")
    (tmp_path / "b.ndjson").write_text("\ufeff" + line("c1"))
    reader = LogReader([tmp_path])
    assert [one.call for one in reader] == ["c1"]
    assert reader.skipped == 1


def test_compressed_files_are_read(tmp_path):
    path = tmp_path / "events.ndjson.gz"
    path.write_bytes(gzip.compress((line("c1") * 3).encode()))
    reader = LogReader([path])
    assert len(list(reader)) == reader.lines == 3
    assert reader.bytes == reader.total_bytes == path.stat().st_size
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(LogError, match="cannot be read: Compressed file ended"):
        calls(path)


def test_a_last_line_that_was_cut_short_is_left_out(tmp_path):
    path = tmp_path / "events.ndjson"
    path.write_text(line("c1") + line("c2")[:-5])
    assert calls(path) == ["c1"]
    path.write_text(line("c1")[:-5] + "\n" + line("c2"))
    with pytest.raises(LogError, match=r"events.ndjson:1: not JSON"):
        calls(path)
    problems: list[str] = []
    assert [one.call for one in read_records([path], problems.append)] == ["c2"]
    assert len(problems) == 1


def test_lines_about_something_else_are_counted(tmp_path):
    path = tmp_path / "events.ndjson"
    path.write_text(f'starting\n{line("c1")}{{"level": "info"}}\n\n')
    reader = LogReader([path])
    assert [one.call for one in reader] == ["c1"]
    assert (reader.lines, reader.skipped) == (4, 2)


def test_a_file_without_any_call_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("\nsome notes\n")
    with pytest.raises(LogError, match=r"notes.txt:2: not a line of a log that sfusion knows; it reads event logs"):
        calls(path)
    path.write_text("")
    assert calls(path) == []


def test_a_hostile_line_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LONGEST_LINE", 1000)
    path = tmp_path / "events.ndjson"
    path.write_text(line("c1") + "x" * 5000)
    with pytest.raises(LogError, match=r"events.ndjson:2: a line of more than 1,000 bytes"):
        calls(path)
    path.write_text("{" + '"a":[' * 300 + "]" * 300 + "}\n" + line("c1"))
    with pytest.raises(LogError):
        calls(path)


def test_what_is_not_a_file_is_refused(tmp_path):
    with pytest.raises(LogError, match="nowhere: cannot be read: No such file"):
        calls(tmp_path / "nowhere")
    with pytest.raises(LogError, match=r"no file in this folder ends with .ndjson"):
        calls(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(LogError, match="fifo: neither a file nor a folder"):
        calls(tmp_path / "fifo")
