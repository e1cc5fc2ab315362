"""``sfusion drift --record``: a file that the fake can serve, or an error and an untouched file."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfusion.fakes.sandbox import Cassette, FakeSandbox
from sfusion.fakes.wire import Answer, FakeServer, Request, WireApp, WireServer
from sfusion.fakes.wire.message import dump_json
from sfusion.harness.cli import app
from sfusion.harness.errors import BadProbes
from sfusion.harness.real.drift.judging import compare_answers, live_answers, recorded_answers
from sfusion.harness.real.probes.cassette import (
    read_recording,
    read_response,
    recording_lines,
    response_record,
)
from sfusion.harness.real.probes.model import Probe, ProbeRequest, bundled_probes, chosen
from sfusion.harness.real.probes.raw_http import ProbeAnswer, Server
from sfusion.harness.real.probes.scrubbing import Scrubber
from sfusion.harness.real.probes.sending import Sender
from tests.harness.real.drift.served import PATIENCE
from tests.ports import closed_port
from tests.warm import warm

pytestmark = pytest.mark.xdist_group("recording")

CODE = ["-k", "results/ or stdin/one or http/ or validation/ or output/line or output/null"]


def sfusion(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return done.exit_code, done.output


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of a fake that runs code."""
    path = tmp_path_factory.mktemp("recorded") / "answers.jsonl"
    with FakeSandbox(
        executor="python", allow_hosts=["probe"], allow_origins=["http://browser.test"]
    ) as sandbox:
        code, output = sfusion("drift", sandbox.url, "--record", path, *CODE)
    assert code == 0, output
    return path


@pytest.fixture
def scripted() -> Iterator[FakeSandbox]:
    with FakeSandbox() as sandbox:
        yield sandbox


def test_the_first_line_describes_the_origin(recorded: Path) -> None:
    meta = json.loads(recorded.read_text().split("\n")[0])["cassette"]
    assert meta["target"] == "http://<HOST>"
    assert meta["server"] == "uvicorn"
    assert (meta["format"], meta["suite"]) == (1, 1)
    assert meta["recorded_at"].endswith("+00:00")
    assert meta["probes"] == len(read_recording(recorded))


def test_answers_are_in_the_order_of_the_suite(recorded: Path) -> None:
    expected = [probe.id for probe in chosen(bundled_probes(), keyword=CODE[CODE.index("-k") + 1])]
    assert list(read_recording(recorded)) == expected


def test_a_fake_that_serves_a_recording_does_not_differ_from_it(recorded: Path) -> None:
    recording = read_recording(recorded)
    probes = [probe for probe in bundled_probes() if probe.id in recording]
    allowed = {"allow_hosts": ["probe"], "allow_origins": ["http://browser.test"]}
    with FakeSandbox(executor="recorded", cassette=recorded, **allowed) as sandbox:
        served = asyncio.run(live_answers(sandbox.url, probes, name="served", timeout=PATIENCE))
    report = compare_answers(probes, served, recorded_answers(recording, probes, name="recorded"))
    assert (report.findings, report.compared) == ((), len(probes))


def test_a_fake_that_runs_code_does_not_differ_from_its_recording(recorded: Path) -> None:
    code, output = sfusion("drift", recorded, "-k", "results/exit or http/")
    assert code == 0, output
    assert "0 breaking, 0 visible, 0 cosmetic" in output


def test_a_cassette_describes_what_it_does_not_serve(recorded: Path) -> None:
    cassette = Cassette.load(recorded)
    assert cassette.meta["target"] == "http://<HOST>"
    assert cassette.skips.keys() == {"not for an endpoint that runs code", "refused"}
    message = cassette.describe()
    assert f"{cassette.skipped} requests are answered without the cassette: " in message
    assert sum(map(len, cassette.takes.values())) + cassette.skipped == len(
        read_recording(recorded)
    )


def test_requests_that_are_not_plain_json_are_served(tmp_path: Path) -> None:
    with FakeSandbox(scripts=[{"prints": "seen\n"}]) as sandbox:
        sfusion("drift", sandbox.url, "--record", tmp_path / "a.jsonl", "-k", "bodies/")
    cassette = Cassette.load(tmp_path / "a.jsonl")
    recording = read_recording(tmp_path / "a.jsonl")
    sent = {
        name.partition("/")[2] for name, (_, answer) in recording.items() if answer.status == 200
    }
    assert {"utf-16", "same-key-twice", "no-type"} <= sent
    answered = [
        take for takes in cassette.takes.values() for take in takes if isinstance(take, dict)
    ]
    assert len(answered) == len(sent)


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": 1}',
        b'{"a":1.50}',
        b'"\\u00e9"',
        b"<p>",
        b"\xff",
        b"",
        b'{"a":"\\ud800"}',
        b"[1,null]",
    ],
)
def test_the_bytes_of_an_answer_are_kept(body: bytes) -> None:
    answer = ProbeAnswer(200, (("X-A", "b"),), body)
    written = json.loads(json.dumps(response_record(answer)))
    assert read_response(written) == answer


def test_every_record_is_one_line_for_every_reader() -> None:
    """Python's splitlines, JavaScript and some editors end a line at these."""
    probe = bundled_probes()[0]
    answer = ProbeAnswer(200, (), dump_json({"stdout": "one\u2028two\u0085three\u2029four"}))
    lines = recording_lines([probe], [answer], target="t", recorded_at="", scrubber=Scrubber.of())
    assert "".join(lines).splitlines(keepends=True) == lines
    assert read_response(json.loads(lines[1])["response"]) == answer


def test_a_failure_is_recorded_as_one(tmp_path: Path) -> None:
    record = {
        "id": "a",
        "group": "b",
        "request": {"raw": "x"},
        "response": response_record(ProbeAnswer(failure="closed")),
    }
    (tmp_path / "a.jsonl").write_text(json.dumps(record))
    assert read_recording(tmp_path / "a.jsonl")["b/a"][1] == ProbeAnswer(failure="closed")
    assert Cassette.load(tmp_path / "a.jsonl").skipped == 1


def test_a_recorded_500_is_served_again() -> None:
    cassette = Cassette()
    request = {
        "method": "POST",
        "path": "/run_code",
        "raw_body": '{"code":"\\ud800","language":"python"}',
    }
    cassette.add(
        {
            "request": request,
            "response": {"status": 500, "json": {"detail": "it cannot", "traceback": []}},
        }
    )
    with FakeSandbox(executor="recorded", cassette=cassette) as sandbox:
        probe = Probe(
            id="a/b", about="Any question will do.", request=ProbeRequest(text=request["raw_body"])
        )
        side = asyncio.run(live_answers(sandbox.url, [probe], name="served", timeout=PATIENCE))
    assert side.answers["a/b"].status == 500
    assert json.loads(side.answers["a/b"].body)["detail"] == "it cannot"


def test_an_encoded_path_is_decoded() -> None:
    cassette = Cassette()
    request = {
        "method": "POST",
        "path": "/run%5Fcode?x=1",
        "json": {"code": "1", "language": "python"},
    }
    cassette.add({"request": request, "response": {"status": 200, "json": {}}})
    assert (len(cassette.takes), cassette.skipped) == (1, 0)


async def test_the_worst_answer_of_a_burst_counts() -> None:
    output = iter(["Success", "Failed", "SandboxError", "Failed", "Success"])

    async def answer(request: Request) -> Answer:
        return Answer.json({"status": next(output)})

    async with WireServer(WireApp(answer)) as server:
        probe = Probe(id="a/b", about="Any question will do.", request=ProbeRequest(), burst=5)
        (answer,) = await Sender(Server.at(server.url), "server").send([probe])
    assert json.loads(answer.body) == {"status": "SandboxError"}


async def test_probes_marked_alone_are_sent_alone() -> None:
    most = dict.fromkeys(["together", "alone"], 0)
    now = 0

    async def answer(request: Request) -> Answer:
        nonlocal now
        now += 1
        most[request.path[1:]] = max(most[request.path[1:]], now)
        for _ in range(20):  # gives other requests time to arrive
            await asyncio.sleep(0.001)
        now -= 1
        return Answer.json(1)

    async with WireServer(WireApp(answer)) as server:
        about = "Any question will do."
        probes = [
            Probe(id=f"a/{n}", about=about, request=ProbeRequest(path=path), alone=path == "/alone")
            for n, path in enumerate(["/together", "/alone"] * 8)
        ]
        await Sender(Server.at(server.url), "server").send(probes)
    assert most["alone"] == 1
    assert 1 < most["together"] <= 4


def test_special_files_are_refused_and_links_are_followed(
    tmp_path: Path, scripted: FakeSandbox
) -> None:
    os.mkfifo(tmp_path / "pipe")
    code, output = sfusion(
        "drift", scripted.url, "--record", tmp_path / "pipe", "-k", "http/ping", "--force"
    )
    assert (code, "is not a regular file" in output) == (2, True)
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "real.jsonl").write_text("old")
    (tmp_path / "link.jsonl").symlink_to("real.jsonl")
    assert (
        sfusion(
            "drift", scripted.url, "--record", tmp_path / "link.jsonl", "-k", "http/ping", "--force"
        )[0]
        == 0
    )
    assert (tmp_path / "link.jsonl").is_symlink()
    assert "v1/ping" in (tmp_path / "real.jsonl").read_text()


def test_an_existing_file_is_replaced_only_with_force(
    tmp_path: Path, scripted: FakeSandbox
) -> None:
    path = tmp_path / "my answers.jsonl"
    path.write_text("mine")
    code, output = sfusion("drift", scripted.url, "--record", path, "-k", "http/ping")
    assert (code, path.read_text()) == (2, "mine")
    assert "exists already; give another name, or --force" in output
    code, output = sfusion("drift", scripted.url, "--record", path, "-k", "http/ping", "--force")
    assert code == 0
    assert f"--cassette '{path}'\n" in output
    assert len(read_recording(path)) == 8
    assert os.listdir(tmp_path) == ["my answers.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--record", "x"], "give a real sandbox"),
        (["http://127.0.0.1:1", "--record", "none/x.jsonl"], "there is no folder none"),
        (["http://127.0.0.1:1", "--record", "."], "is a folder"),
        (
            ["http://127.0.0.1:1", "--record", "x", "-k", "nonsense"],
            "-k 'nonsense' matches no probe",
        ),
        (
            ["http://127.0.0.1:1", "--record", "x", "--header", "no colon"],
            "--header takes 'Name: value'",
        ),
        (["dokcer", "--record", "x"], "is not a sandbox"),
        (["fake", "--record", "x"], "fake is not a real sandbox"),
    ],
)
def test_wrong_input_exits_with_2_and_one_sentence(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, output = sfusion("drift", *arguments)
    assert code == 2, output
    assert message in output
    assert os.listdir(tmp_path) == []


def test_nothing_is_written_if_the_server_is_unreachable(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("mine")
    url = f"http://127.0.0.1:{closed_port()}"
    code, output = sfusion("drift", url, "--record", path, "--force")
    assert code == 3
    assert f"{url} cannot be reached: connection refused; nothing was written" in output
    assert path.read_text() == "mine"


def test_nothing_is_written_if_the_server_goes_away(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("mine")
    with FakeSandbox(faults=[{"after": 5, "what": "crash"}]) as sandbox:
        code, output = sfusion(
            "drift", sandbox.url, "--record", path, "--force", "-k", "results/", "--timeout", "20"
        )
    assert code == 3
    assert "cannot be reached after" in output
    assert (
        f"of {len(chosen(bundled_probes(), keyword='results/'))} probes: connection refused"
        in output
    )
    assert path.read_text() == "mine"


def test_nothing_is_written_if_the_server_stops_answering(tmp_path: Path) -> None:
    with FakeSandbox(faults=[{"what": "hang"}]) as sandbox:
        code, output = sfusion(
            "drift",
            sandbox.url,
            "--record",
            tmp_path / "a.jsonl",
            "-k",
            "results/",
            "--timeout",
            "2",
        )
    assert code == 3
    assert "stopped answering: 3 probes got no answer within 2 s" in output
    assert os.listdir(tmp_path) == []


def test_nothing_is_written_if_the_server_is_not_a_sandbox(tmp_path: Path) -> None:
    async def page(request: Request) -> Answer:
        return Answer.text("<html>welcome</html>", content_type="text/html")

    with FakeServer(WireServer(WireApp(page))) as web:
        code, output = sfusion("drift", web.url, "--record", tmp_path / "a.jsonl")
    assert code == 3
    assert "answers, but not like Sandbox Fusion: GET /v1/ping returns 200 with text/html" in output
    assert os.listdir(tmp_path) == []


def test_an_interrupted_recording_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("mine")
    asked = threading.Event()

    def note(event: dict[str, object]) -> None:
        if event["event"] == "arrived":
            asked.set()

    with FakeSandbox(faults=[{"what": "hang"}], journal=note) as sandbox:
        options = [sandbox.url, "--record", str(path), "--force", "-k", "results/"]
        command = [warm("sfusion"), "drift", *options]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert asked.wait(PATIENCE)
            process.send_signal(signal.SIGINT)
            _, output = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "interrupted; nothing was written" in output
    assert "Traceback" not in output
    assert (path.read_text(), os.listdir(tmp_path)) == ("mine", ["a.jsonl"])


def test_secrets_echoed_by_the_server_are_masked_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def echo(request: Request) -> Answer:
        if request.path == "/base/v1/ping":
            return Answer(body=b'"pong"')
        output = f"{dict(request.headers)} {request.query} at {request.host} in /srv/zqteam/app.py"
        return Answer.json(
            {"detail": output, "seen": {output: [output]}}, status=500, headers=[("x-echo", output)]
        )

    path = tmp_path / "a.jsonl"
    with FakeServer(WireServer(WireApp(echo))) as server:
        url = server.url.replace("http://", "http://zquser:zqpass%21@") + "/base?key=zqquery"
        monkeypatch.setenv("KEY", "zqheader")
        monkeypatch.setenv("BEARER", "Bearer zqbearer")
        headers = ["--header", "X-Key: $KEY", "--header", "Authorization: $BEARER"]
        code, output = sfusion(
            "drift", url, "--record", path, "-k", "results/exit or http/no-host", *headers
        )
        port = str(server.port)
    assert code == 0, output
    assert "left out 1 raw-byte probe, which" in output
    content = path.read_bytes() + output.encode()
    for planted in (b"zquser", b"zqpass", b"zqquery", b"zqheader", b"zqbearer", b"zqteam"):
        assert planted not in content, planted
    assert b"127.0.0.1" not in path.read_bytes()
    assert f":{port}".encode() not in path.read_bytes()
    assert b"<SECRET>" in content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "a.jsonl:1: the recording holds no answers"),
        ("{", "a.jsonl:1: expected an object with group, id, request and response"),
        ('\n{"request": 1}\n', "a.jsonl:2: expected an object"),
        ("[1]\n", "a.jsonl:1: expected an object"),
    ],
)
def test_an_invalid_recording_is_an_error_with_file_and_line(
    content: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(BadProbes, match=message):
        read_recording(tmp_path / "a.jsonl")
    code, output = sfusion("drift", tmp_path / "a.jsonl")
    assert code == 2
    assert message in output


def test_list_shows_the_probes(tmp_path: Path) -> None:
    code, output = sfusion("drift", "--list", "-k", "http/ping")
    assert code == 0
    assert "http/ping          The health check returns the JSON string pong." in output
    assert output.endswith("8 probes\n")
    code, output = sfusion("drift", "--list")
    assert output.endswith(f"{len(bundled_probes())} probes\n")
    assert "(slow)" in output
