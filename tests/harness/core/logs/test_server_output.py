"""What Sandbox Fusion prints itself, plain, coloured, as JSON and wrapped by Docker; and logs from
a pipe or a bomb."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfusion.harness.cli import app
from sfusion.harness.core.logs.reading import LogReader, UnreadableLines
from sfusion.harness.studies.look.digest import Digest
from sfusion.harness.studies.look.overview import overview
from sfusion.harness.studies.look.summary import notes
from tests.harness.studies.look.made_up import START
from tests.harness.studies.made_calls import call_at

COMMAND = "python /tmp/tmpab12/tmp_{}.py"


def line(second: float, level: str, text: str) -> str:
    return f"2025-11-15T09:46:{second:09.6f}Z [{level:<9}] {text} [sandbox.runners.base]\n"


def output() -> str:
    asked = (
        "start processing Language.python request with code ```\nprint('running "
        "command x')\n{\n``` and files []..."
    )
    return "".join(
        [
            line(1, "info", "database initialized"),
            line(2, "debug", asked),
            line(2, "debug", f"running command {COMMAND.format(1)}"),
            line(2.5, "debug", f"running command {COMMAND.format(2)}"),
            line(2.75, "debug", f"stop running command {COMMAND.format(1)}"),
            line(
                3,
                "warning",
                (
                    f"exception on running command {COMMAND.format(2)}: [Errno 11] no more "
                    "processes | None"
                ),
            ),
            line(4, "debug", f"running command {COMMAND.format(3)}"),
        ]
    )


def read(path: Path) -> list[tuple[float, float | None, str]]:
    unreadable = UnreadableLines()
    found = [
        (round(one.began - START + 40, 6), one.seconds, one.kind)
        for one in LogReader([path], unreadable)
    ]
    assert unreadable.count == 0
    return found


EXPECTED = [(2.0, 0.75, "answered"), (2.5, 0.5, "sandbox_error"), (4.0, None, "unfinished")]


def test_commands_of_the_server_s_own_output_are_calls(tmp_path: Path) -> None:
    plain = tmp_path / "server.log"
    plain.write_text(output())
    assert read(plain) == EXPECTED
    coloured = tmp_path / "coloured.log"
    coloured.write_text(
        output().replace("[debug", "[\x1b[32mdebug").replace("running", "\x1b[1mrunning")
    )
    assert read(coloured) == EXPECTED


def test_its_output_is_read_as_json_and_as_docker_keeps_it(tmp_path: Path) -> None:
    parts = [one.partition(" [") for one in output().splitlines() if one.startswith("2025")]
    events = [
        (at, rest.partition("] ")[2].removesuffix(" [sandbox.runners.base]"))
        for at, _, rest in parts
    ]
    as_json = tmp_path / "json.log"
    as_json.write_text(
        "".join(
            json.dumps({"event": e, "level": "debug", "timestamp": at}) + "\n" for at, e in events
        )
    )
    assert read(as_json) == EXPECTED
    docker = tmp_path / "docker.log"
    wrapped = (
        {"log": f"{one}\n", "stream": "stderr", "time": "2025-11-15T09:46:59Z"}
        for one in output().splitlines()
    )
    docker.write_text("".join(json.dumps(one) + "\n" for one in wrapped))
    assert read(docker) == EXPECTED


UVICORN = "INFO:     Started server process [1]\n"


@pytest.mark.parametrize("started", [UVICORN, line(20, "info", "database initialized")])
def test_a_restart_ends_what_ran_and_not_what_had_been_stopped(
    tmp_path: Path, started: str
) -> None:
    def command(number: int, began: float, ended: float | None) -> str:
        name = COMMAND.format(number)
        text = line(began, "debug", f"running command {name}")
        if ended is None:
            return text
        return text + line(ended, "debug", f"stop running command {name}")

    log = tmp_path / "server.log"
    log.write_text(
        started
        + command(1, 1, 2.0)
        + command(2, 2, None)  # ran into its time limit
        + command(3, 8.0, 9.0)
        + command(4, 9.5, None)
        + command(5, 10.0, 10.25)
        + started
        + command(6, 30, 30.5)
    )
    ended = {found[0]: found[1:] for found in read(log)}
    assert ended[9.5] == (0.75, "unreachable"), "it was lost with the server"
    assert ended[2.0] == (None, "unfinished"), "longer than any other: it had been stopped"
    assert ended[30.0] == (0.5, "answered")


@pytest.mark.parametrize(
    "more", [(b" " * 999 + b"\n") * 8_000, b"\n" * 60_000], ids=["long lines", "many lines"]
)
def test_a_compressed_file_is_read_up_to_a_bound(tmp_path: Path, more: bytes) -> None:
    bomb = tmp_path / "bomb.gz"
    first = json.dumps(
        {"event_log": 1, "call": "c1", "began": 5.0, "outcome": "ok", "seconds": 1.0}
    )
    bomb.write_bytes(gzip.compress(f"{first}\n".encode() + more))
    unreadable = UnreadableLines()
    assert [one.call for one in LogReader([bomb], unreadable)] == ["c1"]
    assert "unpacks to more than 200 times its size" in unreadable.first[0]


def test_a_log_comes_from_stdin_and_a_page_goes_to_stdout(tmp_path: Path) -> None:
    given = (
        json.dumps({"event_log": 1, "call": "c1", "began": START, "outcome": "ok", "seconds": 1.0})
        + "\n"
    )
    done = CliRunner().invoke(app, ["look", "-", "--html", "-"], input=given)
    assert done.exit_code == 0
    assert done.stdout.startswith("<!doctype html>")
    assert "1 call, 0.0% failed" in done.stderr
    assert (
        CliRunner().invoke(app, ["look", "-", "--html", "-", "--json", "-"], input=given).exit_code
        == 2
    )


@pytest.mark.parametrize(("later", "said"), [(90.0, True), (0.0, False)])
def test_clocks_of_workers_that_differ_are_noticed(later: float, said: bool) -> None:
    digest = Digest()
    for number in range(100):
        worker = number % 2
        digest.add(
            call_at(
                f"c{number}", START + number + later * worker, 0.5, "client", "ok", f"w{worker}"
            )
        )
    assert any("their clocks differ" in one for one in notes(overview(digest))) is said
