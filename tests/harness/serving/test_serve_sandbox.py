"""``sfusion serve sandbox`` as a process: what it prints, how it stops, what it refuses."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.fakes.sandbox.executors.python import PythonExecutor
from sfusion.fakes.sandbox.executors.python import executor as executors
from sfusion.harness.cli import app
from sfusion.harness.core.logs.reading import read_records
from sfusion.harness.serving.commands import serve_sandbox
from tests.fakes.wire.raw import PATIENCE, PING, Raw, one, run_code
from tests.warm import warm


class ServerProcess:
    """A running command."""

    def __init__(self, process: asyncio.subprocess.Process, output: str) -> None:
        self.process = process
        self.output = output
        found = re.search(r"http://127\.0\.0\.1:(\d+)", output)
        assert found, output
        self.port = int(found.group(1))

    async def end(self, number: signal.Signals) -> tuple[int, str]:
        """Send a signal; return the exit code and the last output."""
        self.process.send_signal(number)
        async with asyncio.timeout(PATIENCE):
            out, err = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, out.decode() + err.decode()


async def command(*arguments: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        warm("sfusion"), "serve", "sandbox", *arguments, stdout=pipe, stderr=pipe
    )


@contextlib.asynccontextmanager
async def serving(*arguments: str) -> AsyncIterator[ServerProcess]:
    process = await command("--port", "0", *arguments)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            output = [(await process.stdout.readline()).decode() for _ in range(3)]
        yield ServerProcess(process, "".join(output))
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def refused(*arguments: str) -> tuple[int | None, str]:
    process = await command(*arguments)
    async with asyncio.timeout(PATIENCE):
        _, err = await process.communicate()
    return process.returncode, err.decode()


async def test_command_prints_its_address_and_settings(tmp_path: Path) -> None:
    faults = tmp_path / "faults.yaml"
    faults.write_text("- {name: flaky-start, first: 1, what: {status: 503}}\n")
    scripts = tmp_path / "scripts.yaml"
    scripts.write_text("- {pattern: answer, prints: '42'}\n")
    journal = tmp_path / "journal.ndjson"
    options = [
        "--faults",
        str(faults),
        "--scripts",
        str(scripts),
        "--journal",
        str(journal),
        "--seed",
        "9",
    ]
    options += ["--event-log", str(tmp_path / "logs" / "events.ndjson")]
    before = time.time()
    async with serving(
        *options, "--model", "{kind: quota, in_flight: 8}", "--profile", "2025-06"
    ) as served:
        assert (
            "profile 2025-06, executor none (runs no code; --executor python does), model "
            "quota, 1 fault"
        ) in served.output
        assert "seed 9" in served.output
        assert (await one(served.port, run_code())).status == 503
        assert (await one(served.port, run_code("answer"))).json["run_result"]["stdout"] == "42"
        assert (await served.end(signal.SIGTERM))[0] == 0
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [event["event"] for event in events][:3] == ["arrived", "strike", "answered"]
    assert all(before < event["at"] < time.time() for event in events)
    assert [call.attempts[0].status for call in read_records([tmp_path / "logs"])] == [503, 200]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_requests_in_flight_finish_after_a_signal(number: signal.Signals) -> None:
    async with serving() as served, Raw(served.port) as raw:
        assert (await raw.ask(PING)).status == 200
        await raw.send(run_code('# sfusion:call=a seconds=3 prints="late"'))
        # The answer to this ping is behind the run's arrival.
        while json.loads((await one(served.port, STATE)).body)["executing"] == 0:
            pass
        ended = asyncio.create_task(served.end(number))
        assert (await raw.answer()).json["run_result"]["stdout"] == "late"
        code, output = await ended
    assert code == 0
    assert "stopped" in output
    assert "Traceback" not in output


STATE = b"GET /__sfusion/state HTTP/1.1\r\nhost: localhost\r\n\r\n"


async def test_port_in_use_is_reported_in_one_line() -> None:
    async with serving() as served:
        code, output = await refused("--port", str(served.port))
    assert code == 2
    expected = (
        f"port {served.port} on 127.0.0.1 is in use by another program; choose "
        "another port, or 0 for a free one"
    )
    assert output.strip() == expected


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--executor", "pyhton"], "unknown executor 'pyhton'; did you mean 'python'?"),
        (["--profile", "2024"], "unknown profile '2024'"),
        (["--faults", "nowhere.yaml"], "nowhere.yaml:1: cannot be read"),
        (["--scripts", "nowhere.yaml"], "nowhere.yaml:1: cannot be read"),
        (["--model", "{kind: quota, in_flight: many}"], "model quota: in_flight"),
        (["--model", "{quota"], "--model:1: not YAML"),
        (["--executor", "recorded"], "needs a cassette"),
        (
            ["--executor", "recorded", "--cassette", "no.jsonl"],
            "cassette no.jsonl:1: cannot be read",
        ),
        (
            ["--executor", "python", "--host", "0.0.0.0"],
            "--allow-remote) and a token (SFUSION_TOKEN or --token-file)",
        ),
        (["--port", "99999"], "port 99999 does not exist"),
        (["--host", "203.0.113.77"], "cannot listen on 203.0.113.77:8080"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_input_is_refused_in_one_line(arguments: list[str], sentence: str) -> None:
    done = CliRunner().invoke(app, ["serve", "sandbox", *arguments])
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


async def test_access_log_has_a_line_per_request_without_the_query() -> None:
    async with serving("--access-log") as served:
        await one(served.port, b"GET /v1/ping?token=secret HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await one(
            served.port, b"GET http://u:secret@localhost/a%0Ab HTTP/1.1\r\nhost: localhost\r\n\r\n"
        )
        _, output = await served.end(signal.SIGTERM)
    assert '127.0.0.1 - "GET /v1/ping" 200' in output
    assert '127.0.0.1 - "GET /a%0Ab" 404' in output
    assert "secret" not in output


async def test_the_start_says_how_programs_are_confined_and_what_a_missing_kernel_costs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = PythonExecutor(namespaces=False, landlock=False, own_user=False, control_groups=False)
    async with FakeSandbox(executor=bare) as sandbox:
        await serve_sandbox._print_banner(sandbox, "no faults")
        _, _, level, gaps, advice, *_ = capsys.readouterr().out.splitlines()
        assert level in ("accident-proof: seccomp", "accident-proof: no layer")
        assert gaps.startswith(
            "NOT confined: memory and processes of a hostile program, this server, which programs"
        )
        assert advice.startswith("for contained: namespaces (")
    async with FakeSandbox(executor="python") as sandbox:
        await serve_sandbox._print_banner(sandbox, "no faults")
        output = capsys.readouterr().out
        assert (await sandbox.executor.confinement()).describe() in output  # type: ignore[attr-defined] # it is python
        assert "ipykernel" not in output
        monkeypatch.setattr(serve_sandbox, "find_spec", lambda name: None)
        await serve_sandbox._print_banner(sandbox, "no faults")
        assert "\nnotebooks need ipykernel, which is missing: " in capsys.readouterr().out


def test_a_server_whose_python_runs_no_program_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 127\n")
    broken.chmod(0o755)
    monkeypatch.setattr(executors, "default_path", lambda: str(tmp_path))
    refused = CliRunner().invoke(app, ["serve", "sandbox", "--port", "0", "--executor", "python"])
    assert refused.exit_code == 3, refused.output
    assert "cannot run programs here: `python -S -c ''` ended with exit code 127" in refused.stderr


def test_a_server_that_must_be_contained_does_not_start_otherwise() -> None:
    command = ["serve", "sandbox", "--port", "0", "--executor", "python", "--require", "contained"]
    refused = CliRunner().invoke(app, [*command, "--network"])
    assert refused.exit_code == 3, refused.output
    assert "--require contained: this is\naccident-proof: " in refused.output
    assert "own network (" in refused.output
    for more in (["--executor", "scripted"], ["--require", "tight"]):
        assert CliRunner().invoke(app, [*command, *more]).exit_code == 2
