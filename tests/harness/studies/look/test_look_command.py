"""``sfusion look``: the summary, the page and the JSON of logs, good and bad."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfusion.harness.cli import app
from sfusion_tools.event_lines import call_line
from sfusion_tools.record import Call
from tests.harness.studies.look.made_up import degrading


def write(path: Path, records) -> Path:
    path.write_bytes(b"".join(map(line_of, records)))
    return path


def line_of(record: Call) -> bytes:
    more = "" if record.problem is None else f',"problem":"{record.problem}"'
    facts = record.source, record.worker, record.call, record.began, record.seconds, record.outcome
    return call_line(*facts, record.attempts, more)


def look(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["look", *map(str, arguments)])
    return done.exit_code, done.output


def test_summary_page_and_json_of_a_training_that_degrades(tmp_path):
    log = write(tmp_path / "events.ndjson", degrading())
    code, output = look(log, "--html", tmp_path / "page.html", "--json", tmp_path / "look.json")
    assert code == 0
    lines = output.splitlines()
    assert lines[0].startswith("3,001 calls, 8.")
    assert lines[0].endswith(
        "% failed, 2025-11-15 09:46:40 UTC to 2025-11-15 10:46:40 UTC (60 min 0 s), 4 workers; "
        "http://10.0.0.2:8080 does worse than the others"
    )
    assert re.search(
        r"^2025-11-15 10:0[67]:\d\d UTC: it got worse: "
        r"2\d\.\d% of calls failed instead of 0\.0%, mostly throttled$",
        output,
        re.M,
    )
    assert re.search(
        r"^2025-11-15 10:2[67]:\d\d UTC: it got better: 0\.0% of calls failed instead of ",
        output,
        re.M,
    )
    assert "http://10.0.0.2:8080 does worse than the others." in lines
    assert "faults applied: busy (" in output
    assert "malformed calls: code is missing (1)" in lines
    assert re.search(
        r"^throttled +\[code_interpreter\] This is not output of a program", output, re.M
    )
    assert re.search(r"^failed .*█.*up to", output, re.M)
    page = (tmp_path / "page.html").read_text()
    assert "it got worse: 2" in page
    assert re.search(r"<h1>.*; http://10.0.0.2:8080 does worse than the others</h1>", page)
    data = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])
    assert 400 < len(data["calls"]) < 1500
    assert max(data["inFlight"][1]) >= 2 > 0 < max(data["waiting"][1])
    assert any(mark[1] == "strike" for mark in data["marks"])
    assert page.count("<rect ") > 100
    told = json.loads((tmp_path / "look.json").read_text())
    assert (told["look"], told["calls"], told["suspect"]) == (1, 3001, "http://10.0.0.2:8080")


def test_a_log_with_broken_lines_is_read_as_far_as_it_goes(tmp_path):
    log = write(tmp_path / "events.ndjson", degrading(50))
    content = log.read_text().splitlines(keepends=True)
    content.insert(7, '{"event_log": 1, "broken\n')
    content.insert(9, "something else\n")
    log.write_text("".join(content) + '{"cut sho')
    code, output = look(log, log)
    assert code == 0
    assert output.startswith("51 calls, ")
    assert f"{log}: the same file as {log}, read once" in output
    assert "Left out, because they could not be read: 1 line." in output
    assert (
        f"written, or its writer was killed): the last line of 1 file; the first: {log}:" in output
    )
    assert "Left out, because they are not about calls: 1 line." in output
    assert f"{log}:8: not JSON" in output


def test_logs_without_times_have_a_page_without_a_timeline(tmp_path):
    log = tmp_path / "uvicorn.log"
    log.write_text('INFO:     10.0.0.7:5 - "POST /run_code HTTP/1.1" 200 OK\n' * 5)
    code, output = look(log, "--html", tmp_path / "page.html")
    assert code == 0
    assert "5 calls, 0.0% failed, line 1 to line 5" in output
    assert "The log has no times" in output
    assert "status 200 counts as answered" in output
    assert 'id="board"' not in (tmp_path / "page.html").read_text()


def test_an_archive_that_was_cut_says_so_above_its_numbers(tmp_path: Path) -> None:
    log = tmp_path / "events.ndjson.gz"
    content = gzip.compress(b"".join(map(line_of, degrading(500))))
    log.write_bytes(content[: len(content) // 2])
    code, output = look(log, "--html", tmp_path / "page.html")
    assert code == 0
    said = "cannot be read from here on: Compressed file ended"
    assert said in output.partition("\n\n")[0], "above the first table"
    assert "1 line" not in output, "more is missing"
    assert said in (tmp_path / "page.html").read_text()


SENT = '10.0.0.1 - - [15/Nov/2025:22:00:00 +0000] "POST /run_code HTTP/1.1" 200 312 "-" "aiohttp"'
EVENT = (
    '{"event_log":1,"source":"%s","call":"c","began":1763244000,"seconds":2,"outcome":"ok",'
    '"attempts":[{"sandbox":"s","after":0,"seconds":2,"outcome":"ok","status":200}]}'
)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (SENT, set()),
        (SENT + ' rt=2.000 ua="10.1.0.1:8080"', {"in_flight"}),
        ('INFO:     10.0.0.7:5 - "POST /run_code HTTP/1.1" 200 OK', set()),
        (EVENT % "server", {"in_flight"}),
        (EVENT % "client", {"in_flight", "waiting"}),
    ],
    ids=["nginx", "nginx with durations", "uvicorn", "server", "client"],
)
def test_what_a_log_cannot_show_is_left_blank(tmp_path: Path, line: str, told: set[str]) -> None:
    log = tmp_path / "one.log"
    log.write_text(f"{line}\n" * 5)
    code, output = look(log, "--json", tmp_path / "look.json", "--html", tmp_path / "page.html")
    assert code == 0
    found = json.loads((tmp_path / "look.json").read_text())
    shown = {key for key in ("in_flight", "waiting") if found["over_time"][0][key] is not None}
    assert shown == told
    peaks = {"in_flight": "most_in_flight", "waiting": "longest_queue"}
    assert {key for key, peak in peaks.items() if found[peak] is not None} == told
    page = (tmp_path / "page.html").read_text()
    assert ("most in flight" in page) == ("in_flight" in told)
    assert ("longest queue" in page) == ("waiting" in told)
    assert len(re.findall(r"\b\d\.\d\b(?!%| s)", row_of(output))) == len(told)


def row_of(output: str) -> str:
    """Return the first row of the table over time."""
    lines = output.splitlines()
    return lines[next(place for place, line in enumerate(lines) if line.startswith("from ")) + 1]


@pytest.mark.parametrize(
    "hostile", ["<script>alert(1)</script>", "</script><b>", "\x1b[31m", "a\nb", "\ud800"]
)
def test_names_of_a_stranger_are_harmless(tmp_path, hostile):
    name = json.dumps(hostile)
    log = tmp_path / "events.ndjson"
    attempt = (
        f'{{"after":0,"seconds":1,"sandbox":{name},"outcome":"ok","status":200,"fault":{name}}}'
    )
    log.write_text(
        f'{{"event_log":1,"call":{name},"worker":{name},"began":5,"seconds":1,"outcome":"ok","problem":{name},"attempts":[{attempt}]}}\n'
    )
    code, output = look(log, "--html", tmp_path / "page.html")
    assert code == 0
    assert "\x1b" not in output
    page = (tmp_path / "page.html").read_text()
    assert "<script>alert" not in page
    assert "</script><b>" not in page
    assert "The timeline shows" not in page  # one call of one: nothing is left out


def test_a_log_without_a_call_says_so(tmp_path):
    (tmp_path / "journal.ndjson").write_text('{"journal": 2, "scenario": "s"}\n')
    code, output = look(tmp_path, "--html", tmp_path / "page.html")
    assert (code, output) == (0, "no call in 1 file of 1 line\n")
    assert "</html>" in (tmp_path / "page.html").read_text()
    (tmp_path / "journal.ndjson").write_text('{"journal": 2, "scenario": "s"}\n{"cut sho')
    code, output = look(tmp_path)
    assert output.startswith("no call in 1 file of 2 lines\nLeft out, because it is cut short")


def test_calls_that_the_guard_refused_are_counted(tmp_path):
    log = write(tmp_path / "events.ndjson", degrading(50))
    refused = (
        '{"event_log":1,"call":"r","began":1763200800,"seconds":0,'
        '"outcome":"cancelled","refused":"guard"}\n'
    )
    log.write_text(log.read_text() + refused * 3)
    code, output = look(log, "--html", tmp_path / "page.html")
    assert (code, output.startswith("54 calls, ")) == (0, True)
    assert "Refused by the guard, because too many calls had failed: 3 calls.\n" in output
    assert "Refused by the guard" in (tmp_path / "page.html").read_text()


def test_calls_that_were_cancelled_in_the_queue_were_waiting(tmp_path):
    line = (
        '{"event_log":1,"call":"w","began":1763200000,"seconds":8,'
        '"outcome":"cancelled","waited":8,"attempts":[]}\n'
    )
    (tmp_path / "events.ndjson").write_text(line * 4)
    assert look(tmp_path, "--json", tmp_path / "look.json")[0] == 0
    told = json.loads((tmp_path / "look.json").read_text())
    assert max(row["waiting"] for row in told["over_time"]) == pytest.approx(4)
    assert told["waits"]["p50"] == pytest.approx(8, rel=0.03)


def test_the_path_of_a_config_stands_for_the_files_of_all_processes(tmp_path):
    for worker in ("a-1", "b-2"):
        write(tmp_path / f"events.{worker}-001.ndjson", degrading(10))
    assert look(tmp_path / "events.ndjson")[1].startswith("22 calls")


def test_what_cannot_be_read_or_written_is_refused(tmp_path):
    code, output = look(tmp_path / "nowhere.ndjson")
    assert (code, "No such file" in output) == (2, True)
    (tmp_path / "notes.txt").write_text("hello\n")
    code, output = look(tmp_path / "notes.txt")
    assert (code, "notes.txt:1: not a line of a log that sfusion knows" in output) == (2, True)
    (tmp_path / "empty.ndjson").write_text("")
    code, output = look(tmp_path / "empty.ndjson", "--html", tmp_path / "page.html")
    assert (code, "empty.ndjson: no line in it" in output) == (2, True)
    assert not (tmp_path / "page.html").exists()
    code, output = look(tmp_path / "notes.txt", "--html", tmp_path)
    assert (code, "is a folder; give a file" in output) == (2, True)


def test_where_both_sides_are_logged_each_call_is_counted_once(tmp_path: Path) -> None:
    """The servers' records of the same requests were counted as other calls."""
    calls = [
        Call(f"c{n}", 1000.0 + n, source="client", seconds=0.5, outcome="ok") for n in range(20)
    ]
    write(tmp_path / "client.ndjson", calls)
    seen = [
        Call(f"c{n}", 1000.1 + n, source="server", seconds=0.4, outcome="ok") for n in range(20)
    ]
    write(tmp_path / "server.ndjson", seen)
    code, output = look(tmp_path)
    assert (code, output.splitlines()[0].split(",")[0]) == (0, "20 calls"), output
    assert "Note: 20 records of servers are left out" in output
    assert look(tmp_path / "server.ndjson")[1].startswith("20 calls")
