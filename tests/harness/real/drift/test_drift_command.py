"""The command ``sfusion drift``: what it prints and writes, and its exit codes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.fakes.wire import Answer, FakeServer, Request, WireApp, WireServer
from sfusion.harness.cli import app
from tests.harness.real.drift.served import sfusion
from tests.ports import closed_port

pytestmark = pytest.mark.xdist_group("drift command")

MEMORY = ["-k", "memory/ or http/ping"]


def drift(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["drift", *map(str, arguments)])
    return done.exit_code, done.output


@pytest.fixture(scope="module")
def old() -> Iterator[str]:
    """A server of the other profile."""
    with FakeSandbox(executor="python", profile="2025-06") as sandbox:
        yield sandbox.url


def test_a_breaking_difference_exits_with_1_and_a_plain_table(old: str, tmp_path: Path) -> None:
    files = ["--json", str(tmp_path / "drift.json")]
    done = sfusion("drift", old, "--profile", "2026-07", *MEMORY, *files)
    assert done.returncode == 1, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"fake 2026-07 against {old}"
    assert lines[2].split() == ["grade", "probe", "place", "fake", "2026-07", old]
    assert lines[3].split() == [
        "breaking",
        "memory/over-limit",
        "body.status",
        '"Failed"',
        '"Success"',
    ]
    assert (
        "breaking: outcome: The status or exit code decides whether a call counts as solved."
        in lines
    )
    assert lines[-1].startswith(
        "7 breaking, 0 visible, 0 cosmetic: differences in 4 of 16 probes compared"
    )
    assert f"{old}: 16 of 16 probes" in done.stderr
    report = json.loads((tmp_path / "drift.json").read_text())
    assert report["counts"] == {"breaking": 7, "visible": 0, "cosmetic": 0, "variable": 0}
    assert report["compared"] == 16
    assert report["differences"][0] == {
        "probe": "memory/over-limit",
        "place": "body.status",
        "kind": "text",
        "left": "Failed",
        "right": "Success",
        "grade": "breaking",
        "rule": "outcome",
        "because": "The status or exit code decides whether a call counts as solved.",
    }


def test_the_profile_is_detected_from_the_answers(old: str) -> None:
    code, output = drift(old, *MEMORY)
    assert code == 0
    assert "the fake plays profile 2025-06 (detected by its memory limits)" in output
    code, output = drift(old, "-k", "http/ping")
    assert (
        "the fake plays profile 2026-07 (the default, as the answers do not show which it is)"
        in output
    )


def test_what_our_own_server_refuses_to_web_pages_is_not_drift(old: str) -> None:
    code, output = drift(old, "-k", "run-code-origin or preflight or http/ping")
    assert code == 0
    assert (
        "is sfusion's fake, which refuses requests of web pages and of other host names: "
        "http/preflight"
    ) in output
    assert "2 not comparable" in output


def test_programs_are_not_compared_with_a_fake_that_runs_no_code(old: str) -> None:
    code, output = drift(old, "--executor", "scripted", "-k", "results/exit or http/ping")
    assert code == 0, output
    assert (
        "not comparable: the fake runs no code with executor scripted: results/exit-0, " in output
    )


@pytest.mark.parametrize(
    "other",
    [{"path": "/elsewhere"}, {"method": "POST"}, {"headers": {"accept": "text/html"}}, {"json": 1}],
    ids=["path", "method", "headers", "body"],
)
def test_a_recording_of_other_requests_is_not_comparable(
    other: dict[str, Any], tmp_path: Path
) -> None:
    request = {"method": "GET", "path": "/v1/ping", "headers": {}, **other}
    response = {"status": 404, "headers": [], "json": {"detail": "Not Found"}}
    record = {"id": "ping", "group": "http", "request": request, "response": response}
    (tmp_path / "a.jsonl").write_text(json.dumps(record) + "\n")
    code, output = drift(tmp_path / "a.jsonl", "-k", "http/ping", "--executor", "scripted")
    assert code == 2, output
    assert "not comparable: a.jsonl has the answer to a different request: http/ping\n" in output
    assert "not comparable: not in a.jsonl: http/ping-query, " in output
    assert "no probe could be compared" in output  # a check that compares nothing must not pass


def test_a_bundled_recording_is_compared_with_the_fake_or_with_a_sandbox(old: str) -> None:
    newest = "source-2026-07-14"
    code, output = drift(newest, "-k", "validation/memory")
    assert code == 0, output
    assert f"fake 2026-07 against {newest}" in output
    assert "differences in 0 of 6 probes compared, 0 not comparable" in output

    code, output = drift(old, "--baseline", newest, *MEMORY)
    assert code == 1, output
    assert f"{newest} against {old}" in output
    assert "memory/limit-seen" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["http://127.0.0.1:1", "--baseline", "source-2026"], "did you mean 'source-2026-07-14'?"),
        ([], "give a real sandbox: a URL, docker"),
        (["http://127.0.0.1:1", "--profile", "2026-7"], "did you mean '2026-07'?"),
        (["http://127.0.0.1:1", "--executor", "recorded"], "cannot be compared"),
        (["http://127.0.0.1:1", "--json", "."], "--json .: is a folder; give a file"),
        (["nonsense"], "'nonsense' is not a sandbox"),
        (["http://127.0.0.1:1", "-k", "nonsense"], "-k 'nonsense' matches no probe"),
        (["none.jsonl"], "none.jsonl:1: cannot be read"),
        (["127.0.0.1:8080"], "an address begins with its scheme"),
        (["http://xxx.apigateway.test"], "placeholder"),
    ],
)
def test_wrong_input_exits_with_2_and_one_sentence(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, output = drift(*arguments)
    assert code == 2, output
    assert message in output
    assert "Traceback" not in output
    assert os.listdir(tmp_path) == []


def test_an_unreachable_server_exits_with_3() -> None:
    url = f"http://127.0.0.1:{closed_port()}"
    code, output = drift(url)
    assert (code, "connection refused" in output) == (3, True)
    code, output = drift(url.replace("http://", "http://team:zqsecret@"))
    assert (code, "zqsecret" in output) == (3, False)


def test_a_server_that_is_not_a_sandbox_exits_with_3() -> None:
    async def page(request: Request) -> Answer:
        return Answer.text("<html>welcome</html>", status=404, content_type="text/html")

    with FakeServer(WireServer(WireApp(page))) as web:
        code, output = drift(web.url)
    assert code == 3
    assert "answers, but not like Sandbox Fusion: GET /v1/ping returns 404 with text/html" in output


def test_secrets_echoed_by_the_server_are_masked_in_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def echo(request: Request) -> Answer:
        return Answer.json({"detail": f"{dict(request.headers)} {request.query}"}, status=404)

    with FakeServer(WireServer(WireApp(echo))) as server:
        url = server.url.replace("http://", "http://zquser:zqpass@") + "?key=zqquery"
        monkeypatch.setenv("KEY", "zqheader")
        code, output = drift(
            url,
            "-k",
            "http/unknown or no-host",
            "--header",
            "X-Key: $KEY",
            "--json",
            tmp_path / "a.json",
        )
    assert code == 0, output
    assert (
        "not comparable: raw bytes cannot carry the header, prefix or key of a gateway: "
        "http/no-host"
    ) in output
    content = output + (tmp_path / "a.json").read_text()
    assert "<SECRET>" in content
    for planted in ("zquser", "zqpass", "zqquery", "zqheader"):
        assert planted not in content
