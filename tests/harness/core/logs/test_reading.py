"""Reading logs of any kind: which files, which lines, and what is said about those that cannot be
read."""

from __future__ import annotations

import gzip
import json
import os

import pytest

from sfusion.harness.core.logs import reading
from sfusion.harness.core.logs.reading import LogReader, read_records
from sfusion.harness.errors import LogError


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


def test_lines_that_docker_keeps_of_a_container_are_read(tmp_path):
    time = "2025-10-10T20:55:36.250000000Z"

    def wrapped(text: str) -> str:
        return json.dumps({"log": f"{text}\n", "stream": "stdout", "time": time}) + "\n"

    post = '1.2.3.4:5 - "POST /run_code HTTP/1.1" 503 Service Unavailable'
    nginx = '1.2.3.4 - - [10/Oct/2025:13:55:30 -0700] "POST /run_code HTTP/1.1" 502 12 "-" "-"'
    texts = [
        f"INFO:     {post}",
        nginx,
        line("c1").strip(),
        "INFO:     Started",
        wrapped(f"INFO:     {post}").strip(),
    ]
    path = tmp_path / "abc-json.log"
    path.write_text("".join(map(wrapped, texts)))
    reader = LogReader([path])
    read = [(one.call, one.began, one.outcome) for one in reader]
    at = 1760129736.25
    assert read == [("", at, "sandbox_error"), ("", at - 6.25, "sandbox_error"), ("c1", 5.0, None)]
    assert reader.skipped == 2


def test_compressed_files_are_read(tmp_path):
    path = tmp_path / "events.ndjson.gz"
    path.write_bytes(gzip.compress((line("c1") * 3).encode()))
    reader = LogReader([path])
    assert len(list(reader)) == reader.lines == 3
    assert reader.bytes == reader.total_bytes == path.stat().st_size
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(LogError, match="cannot be read from here on: Compressed file ended"):
        calls(path)


def test_the_same_file_is_read_once_whatever_its_names(tmp_path):
    log = tmp_path / "a.ndjson"
    log.write_text(line("c1"))
    (tmp_path / "link.ndjson").symlink_to(log)
    (tmp_path / "hard.ndjson").hardlink_to(log)
    (tmp_path / "other.ndjson").write_text(line("c1"))
    reader = LogReader([log, tmp_path / ".." / tmp_path.name / "a.ndjson", tmp_path, log])
    assert [one.call for one in reader] == ["c1", "c1"], "another file may hold the same lines"
    assert reader.files == [log, tmp_path / "other.ndjson"]
    assert reader.total_bytes == 2 * log.stat().st_size
    assert reader.left_out == [
        f"{tmp_path}/../{tmp_path.name}/a.ndjson: the same file as {log}, read once",
        f"{tmp_path}/a.ndjson: the same file as {log}, read once",
        f"{tmp_path}/hard.ndjson: the same file as {log}, read once",
        f"{tmp_path}/link.ndjson: the same file as {log}, read once",
        f"{log}: the same file as {log}, read once",
    ]


@pytest.mark.parametrize("swapped", [False, True])
def test_a_file_and_its_compressed_copy_are_read_once(tmp_path, swapped):
    text = "".join(line(f"c{number}") for number in range(3000)).encode()
    plain, packed = tmp_path / "a.ndjson", tmp_path / "a.ndjson.gz"
    plain.write_bytes(text)
    packed.write_bytes(gzip.compress(text))
    given = [packed, plain] if swapped else [tmp_path]
    reader = LogReader(given)
    assert len(list(reader)) == 3000
    assert reader.files == [plain]
    assert reader.left_out == [f"{packed}: the same lines as {plain}, read once"]
    for other in (text[:-1] + b" ", text + line("more").encode(), text[: len(text) // 2]):
        packed.write_bytes(gzip.compress(other))
        assert LogReader(given).left_out == []
    packed.write_bytes(b"\x1f\x8b nonsense")
    assert LogReader(given).left_out == []


EVENT = {"event_log": 1, "call": "c", "began": 5.0}
JOURNAL = {"at": 5.0, "call": "c", "attempt": 1}


@pytest.mark.parametrize("form", ["event log", "client's journal", "server's journal"])
@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("http://user:hunter2@h:80/run_code?key=hunter2", "http://h:80/run_code"),
        ("user:hunter2@h:80", "h:80"),
        (f"http://user:{'hunter2' * 60}@h:80", "http://h:80"),
        ("http://h:80/***-28d3/run_code", "http://h:80/***-28d3/run_code"),
        ("sandbox#2", "sandbox#2"),
        ("s" * 400, "s" * 300),
    ],
    ids=["user and query", "without a scheme", "long password", "redacted", "name", "long name"],
)
def test_secrets_in_the_address_of_a_sandbox_are_not_read(tmp_path, form, written, shown):
    path = tmp_path / "a.ndjson"
    lines = {
        "event log": [EVENT | {"attempts": [{"after": 0.0, "sandbox": written}]}],
        "client's journal": [
            JOURNAL | {"source": "client", "event": "call_started"},
            JOURNAL | {"source": "client", "event": "attempt_started", "endpoint": written},
        ],
        "server's journal": [
            JOURNAL | {"source": "server", "event": "arrived", "sandbox": written}
        ],
    }
    path.write_text("".join(json.dumps(one) + "\n" for one in lines[form]))
    assert [one.endpoint for record in read_records([path]) for one in record.attempts] == [shown]


def test_a_last_line_that_was_cut_short_is_left_out(tmp_path):
    path = tmp_path / "events.ndjson"
    path.write_text(line("c1") + line("c2")[:-5])
    reader = LogReader([path])
    assert [one.call for one in reader] == ["c1"]
    (said,) = reader.left_out
    assert said.startswith("Left out, because it is cut short (still being written, or its writer")
    assert f": the last line of 1 file; the first: {path}:2: not JSON" in said
    path.write_text(line("c1")[:-5] + "\n" + line("c2"))
    with pytest.raises(LogError, match=r"events.ndjson:1: not JSON"):
        calls(path)
    problems: list[str] = []
    assert [one.call for one in read_records([path], problems.append)] == ["c2"]
    assert len(problems) == 1


def test_a_file_that_is_broken_off_is_told_apart_from_a_line_that_cannot_be_read(tmp_path):
    path = tmp_path / "events.ndjson.gz"
    path.write_bytes(gzip.compress("".join(map(line, map(str, range(2000)))).encode())[:-500])
    problems: list[str] = []
    reader = LogReader([path], problems.append)
    reader.on_broken_off = reader.left_out.append
    read = sum(1 for _ in reader)
    assert 0 < read < 2000
    reason = "Compressed file ended before the end-of-stream marker was reached"
    said = f"{path}:{read + 1}: cannot be read from here on: {reason}"
    assert (reader.left_out, problems) == ([said], [])
    assert sum(1 for _ in read_records([path], problems.append)) == read
    assert problems == [said], "of who does not ask for the difference"


def test_lines_about_something_else_are_counted(tmp_path):
    path = tmp_path / "events.ndjson"
    path.write_text(f'starting\n{line("c1")}{{"level": "info"}}\n\n')
    reader = LogReader([path])
    assert [one.call for one in reader] == ["c1"]
    assert (reader.lines, reader.skipped) == (4, 2)


def test_a_file_without_any_call_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("\nsome notes\n")
    with pytest.raises(
        LogError, match=r"notes.txt:2: not a line of a log that sfusion knows; it reads event logs"
    ):
        calls(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "no line in it"),
        ("\n\n", "no line in it"),
        ('{"event_log": 1, "broken\n' * 2, "nothing in it can be read; .*:1: not JSON"),
        (line("c1")[:-5], "nothing in it can be read; .*:1: not JSON"),
    ],
)
def test_a_file_in_which_nothing_can_be_read_is_refused(tmp_path, content, says):
    path = tmp_path / "events.ndjson"
    path.write_text(content)
    for given in (path, tmp_path):
        with pytest.raises(LogError, match=f"{given}: {says}"):
            list(read_records([given], lambda _: None))
    (tmp_path / "good.log").write_text(line("c1"))
    assert [one.call for one in read_records([tmp_path], lambda _: None)] == ["c1"]


@pytest.mark.parametrize(
    "content",
    [
        '{"journal": 2, "scenario": "s"}\n',
        'INFO:     10.0.0.7:5 - "GET /v1/ping HTTP/1.1" 200 OK\n',
    ],
)
def test_a_log_may_have_no_call(tmp_path, content):
    (tmp_path / "empty.log").write_text(content)
    assert calls(tmp_path / "empty.log") == calls(tmp_path) == []


def test_a_hostile_line_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LONGEST_LINE", 1000)
    path = tmp_path / "events.ndjson"
    path.write_text(line("c1") + "x" * 5000 + "\n" + line("c2") + "y" * 2000)
    with pytest.raises(LogError, match=r"events.ndjson:2: a line of more than 1,000 bytes"):
        calls(path)
    problems: list[str] = []
    reader = LogReader([path], problems.append)
    assert [one.call for one in reader] == ["c1", "c2"]
    assert [problem.split(": ")[0] for problem in problems] == [f"{path}:2", f"{path}:4"]
    assert reader.lines == 4
    path.write_text("{" + '"a":[' * 300 + "]" * 300 + "}\n" + line("c1"))
    with pytest.raises(LogError):
        calls(path)


def test_a_file_that_was_rotated_away_meanwhile_is_a_problem_and_no_more(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.ndjson").write_text(line(name))
    problems: list[str] = []
    reader = LogReader([tmp_path], problems.append)
    (tmp_path / "b.ndjson").unlink()
    assert [one.call for one in reader] == ["a", "c"]
    assert problems == [f"{tmp_path}/b.ndjson:1: cannot be read: No such file or directory"]
    assert reader.bytes == reader.total_bytes


def test_progress_is_told_also_while_no_line_is_about_a_call(tmp_path):
    (tmp_path / "a.log").write_text("starting\n" * 5000 + line("c1"))
    told: list[int] = []
    reader = LogReader([tmp_path], on_progress=told.append)
    assert len(list(reader)) == 1
    assert len(told) >= 5
    assert told == sorted(told)
    assert told[-1] <= reader.total_bytes


def test_what_is_not_a_file_is_refused(tmp_path):
    with pytest.raises(LogError, match="nowhere: cannot be read: No such file"):
        calls(tmp_path / "nowhere")
    with pytest.raises(LogError, match=r"no file in this folder ends with .ndjson"):
        calls(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(LogError, match="fifo: neither a file nor a folder"):
        calls(tmp_path / "fifo")
