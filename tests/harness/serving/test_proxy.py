"""``sfusion proxy`` as a process: what it prints, how it stops, what it refuses."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.cli import app
from sfusion.harness.core.logs.reading import read_records
from tests.fakes.proxy.scripted_upstream import OK, always, scripted_upstream
from tests.fakes.wire.raw import PATIENCE, Raw, Watch, get, one, run_code
from tests.harness.serving.test_serve_sandbox import ServerProcess
from tests.warm import warm


@contextlib.asynccontextmanager
async def serving(*arguments: str, lines: int = 3) -> AsyncIterator[ServerProcess]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        warm("sfusion"), "proxy", "--port", "0", *arguments, stdout=pipe, stderr=pipe
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            output = [(await process.stdout.readline()).decode() for _ in range(lines)]
        yield ServerProcess(process, "".join(output))
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


async def test_command_prints_its_address_and_applies_its_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults, journal = tmp_path / "faults.yaml", tmp_path / "journal.ndjson"
    faults.write_text("- {name: flaky-start, first: 1, what: {status: 503}}\n")
    seen: list[tuple[bytes, bytes]] = []
    options = [
        "--faults",
        str(faults),
        "--journal",
        str(journal),
        "--seed",
        "9",
        "--model",
        "{kind: quota, in_flight: 8}",
    ]
    options += ["--event-log", str(tmp_path / "logs")]
    (tmp_path / "logs").mkdir()
    before = time.time()
    (tmp_path / "key").write_text("api-secret\n")
    address = tmp_path / "address"
    monkeypatch.setenv("OTHER_KEY", "other-secret")
    headers = ["--header", f"X-Api-Key: @{tmp_path / 'key'}", "--header", "x-b:$OTHER_KEY"]
    async with (
        scripted_upstream(always(OK, seen)) as server,
        serving(
            f"@{written(address, f'http://u:pw-secret@127.0.0.1:{server.port}/run_code')}",
            *options,
            *headers,
        ) as served,
    ):
        first, second, third = served.output.splitlines()
        assert first == f"fault proxy on http://127.0.0.1:{served.port} for {server.url}"
        assert second == f"model quota, 1 fault rule from {faults}, seed 9"
        assert (
            third
            == "admin: closed, as there is no token: set SFUSION_TOKEN, or use --token-file FILE"
        )
        assert (await one(served.port, run_code())).status == 503
        assert (await one(served.port, run_code())).body == b"ok"
        code, output = await served.end(signal.SIGTERM)
    assert code == 0
    said = output.splitlines()
    assert said[:2] == ["stopping: requests in flight get 5 s to finish", "stopped"]
    assert said[2] == "Verdict over the traffic: 1 call, 2 requests, at most 1 in flight"
    noted = [json.loads(line) for line in journal.read_text().splitlines()]
    assert all(before < event["at"] < time.time() for event in noted)
    calls = list(read_records([tmp_path / "logs"]))
    assert [(call.attempts[0].status, call.attempts[0].fault) for call in calls] == [
        (503, "flaky-start"),
        (200, None),
    ]
    events = [event["event"] for event in noted]
    assert events == [
        "arrived",
        "strike",
        "answered",
        "arrived",
        "forwarded",
        "replied",
        "answered",
    ]
    heads = {head.split(b" HTTP")[0]: head for head, _ in seen}
    assert set(heads) == {b"GET /v1/ping", b"POST /run_code"}, "it pings the upstream at the start"
    assert all(b"X-Api-Key: api-secret\r\nx-b: other-secret\r\n" in head for head in heads.values())
    assert "secret" not in served.output + output + journal.read_text()


async def test_proxy_starts_while_the_upstream_is_down() -> None:
    async with serving("http://127.0.0.1:1", lines=4) as served:
        assert served.output.splitlines()[2] == (
            "the upstream does not answer yet: http://127.0.0.1:1 cannot be reached: "
            "connection refused"
        )
        assert (await one(served.port, get("/v1/ping"))).status == 502


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_requests_in_flight_finish_after_a_signal(number: signal.Signals) -> None:
    events = Watch()
    async with (
        FakeSandbox(journal=events.note) as sandbox,
        serving(sandbox.url) as served,
        Raw(served.port) as raw,
    ):
        await raw.send(run_code('# sfusion:call=a seconds=0.2 prints="late"'))
        await events.until(lambda: sandbox.ledger.executing == 1)
        ended = asyncio.create_task(served.end(number))
        assert (await raw.answer()).json["run_result"]["stdout"] == "late"
        code, output = await ended
    assert code == 0
    assert "stopped" in output
    assert "Traceback" not in output


async def test_access_log_has_a_line_per_request_without_the_query() -> None:
    async with FakeSandbox() as sandbox, serving(sandbox.url, "--access-log") as served:
        await one(served.port, get("/v1/ping?token=secret"))
        _, output = await served.end(signal.SIGTERM)
    assert '127.0.0.1 - "GET /v1/ping" 200' in output
    assert "secret" not in output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["ftp://x"],
            (
                "an upstream is the address of an HTTP server, such as http://127.0.0.1:8080; "
                "found 'ftp://x'"
            ),
        ),
        (
            ["http://127.0.0.1:8080"],
            (
                "is this proxy itself; give the address of the real server, or let the proxy "
                "listen on another"
            ),
        ),
        (["http://h", "--faults", "nowhere.yaml"], "nowhere.yaml:1: cannot be read"),
        (["http://h", "--model", "{cores: 2}"], "a server model has a kind"),
        (
            ["http://h", "--model", "{kind: unbounded, cores: 2}"],
            "cores and spawn_cost describe how a server runs programs",
        ),
        (["http://h", "--model", "{quota"], "--model:1: not YAML"),
        (
            ["http://h", "--host", "0.0.0.0"],
            "--allow-remote) and a token (SFUSION_TOKEN or --token-file)",
        ),
        (["http://h", "--header", "my-secret"], "--header takes 'Name: value'"),
        (
            ["http://h", "--header", "X-Key: my-secret"],
            "--header X-Key: other users can read a command line",
        ),
        (
            ["http://h", "--header", "X-Key: $NO_SUCH_VARIABLE"],
            "--header X-Key: the variable NO_SUCH_VARIABLE is not",
        ),
        (["http://h", "--header", "X-Key: @nowhere"], "--header X-Key: nowhere cannot be read"),
        (["http://u:my-secret@h"], "URL: other users can read a command line"),
        (
            ["http://h", "--header", "X-A: a\nX-B: my-secret"],
            "--header X-A: the value contains characters",
        ),
        (["http://h", "--port", "99999"], "port 99999 does not exist"),
        (["http://h", "--journal", "nowhere/at/all"], "--journal nowhere/at/all cannot be written"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_wrong_input_is_refused_in_one_line(arguments: list[str], sentence: str) -> None:
    done = CliRunner().invoke(app, ["proxy", *arguments])
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""
    assert "my-secret" not in done.stderr


def test_help_explains_rules_phases_and_admin() -> None:
    output = (
        CliRunner().invoke(app, ["proxy", "--help"], env={"COLUMNS": "120", "NO_COLOR": "1"}).stdout
    )
    for words in ("--faults flaky.yaml", "`before` forwarding", "PUT /__sfusion/faults"):
        assert words in output


@pytest.mark.parametrize("flags", [[], ["--judge"]])
async def test_the_traffic_is_judged_when_it_ends(flags: list[str], tmp_path: Path) -> None:
    """Of any client, without an adapter: here one that ignores Retry-After."""
    rules = "- {first: 1, what: {status: 429, retry_after: 60}}\n"
    faults = written(tmp_path / "faults.yaml", rules)
    async with (
        scripted_upstream(always(OK, [])) as server,
        serving(server.url, "--faults", str(faults), *flags) as served,
    ):
        assert (await one(served.port, run_code())).status == 429
        assert (await one(served.port, run_code())).status == 200
        code, output = await served.end(signal.SIGTERM)
    assert code == (1 if flags else 0)
    assert "  broken   retry_after_honoured    call 1 was sent again " in output
    assert "A right client waits as long as Retry-After says" in output
