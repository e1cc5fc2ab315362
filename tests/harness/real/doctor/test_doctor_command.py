"""The command ``sfusion doctor``: output, files and exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from typer.testing import CliRunner

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.cli import app
from sfusion.harness.real.doctor.command import DoctorReporter, exit_code
from sfusion.harness.real.doctor.examination import CHECKS
from tests.harness.real.doctor.servers import scripted, serving_tls
from tests.harness.real.doctor.test_endpoint import server_side
from tests.ports import closed_port
from tests.warm import warm

pytestmark = pytest.mark.xdist_group("doctor")

RUN = CliRunner()


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[FakeSandbox]:
    with FakeSandbox(executor="python") as fake:
        yield fake


QUICK = ["--quick", "--languages", "python", "--packages", "json", "--timeout", "30"]


def test_a_healthy_sandbox_exits_with_0_and_plain_text(
    sandbox: FakeSandbox, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    done = RUN.invoke(app, ["doctor", f"{sandbox.url}/run_code", *QUICK, "--json", str(report)])
    assert done.exit_code == 0, done.output
    assert f"examining {sandbox.url}/run_code" in done.stdout
    assert "nothing found that breaks training" in done.stdout
    assert "not examined: left out by --quick" in done.stdout
    assert "\x1b" not in done.stdout
    for number, check in enumerate(CHECKS, 1):
        assert re.search(
            rf"^\[{number:>2}/{len(CHECKS)}\] {re.escape(check.name)} +\S",
            done.stdout,
            re.MULTILINE,
        )
    document = json.loads(report.read_text())
    (one,) = document["sandboxes"]
    assert document["exit_code"] == 0
    assert one["url"] == f"{sandbox.url}/run_code"
    assert {"id", "severity", "seen", "training", "change"} == set(one["findings"][0])
    assert one["measured"]["output_bytes"] == 219_264
    assert {"check": "throughput", "why": "left out by --quick"} in one["not_examined"]


def test_json_on_stdout_moves_the_text_to_stderr() -> None:
    with FakeSandbox(executor="scripted") as fake:
        done = RUN.invoke(app, ["doctor", fake.url, "--json", "-"])
    assert done.exit_code == 1
    document = json.loads(done.stdout)
    assert document["exit_code"] == 1
    assert [finding["id"] for finding in document["sandboxes"][0]["findings"]] == [
        "wrong-output"
    ] or (
        document["sandboxes"][0]["findings"][-1]["id"]
        == "loopback-in-container"  # a note, inside a container
    )
    assert "1 finding breaks training" in done.stderr


def test_a_finding_that_breaks_training_exits_with_1_and_is_printed_in_full() -> None:
    with FakeSandbox(executor="scripted") as fake:
        done = RUN.invoke(app, ["doctor", fake.url])
    assert done.exit_code == 1
    assert re.search(
        r"^breaks: wrong-output\n  seen +\S.*\n  training +\S.*\n  change +\S",
        done.stdout,
        re.MULTILINE,
    )
    assert "1 finding breaks training" in done.stdout.splitlines()[-1]


def test_a_placeholder_exits_with_1() -> None:
    done = RUN.invoke(app, ["doctor", "https://your-sandbox.example.com/run_code"])
    assert done.exit_code == 1
    assert "breaks: placeholder-url" in done.stdout


def test_an_unreachable_sandbox_exits_with_3() -> None:
    done = RUN.invoke(app, ["doctor", f"http://127.0.0.1:{closed_port()}/run_code"])
    assert done.exit_code == 3
    assert "Connection refused" in done.stdout


def test_one_of_two_sandboxes_unreachable_exits_with_1(tmp_path: Path) -> None:
    with scripted() as fake:
        path = tmp_path / "tools.yaml"
        urls = f"[{fake.url}/run_code, http://127.0.0.1:{closed_port()}/run_code]"
        path.write_text(
            "tools: [{class_name: sfusion_tools.sandbox_fusion_tools.SandboxFusionTool, "
            f"config: {{sandbox_fusion_url: {urls}, default_language: python}}}}]\n"
        )
        done = RUN.invoke(app, ["doctor", "--tools", str(path), *QUICK])
    assert done.exit_code == 1, done.output
    assert done.stdout.count("examining http://") == 2
    assert "(tools.yaml, tools[0])" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "nothing to examine"),
        (["sandbox"], "'sandbox' is not a sandbox; use fake, an address"),
        (["ftp://box/run_code"], "must be the address of a Sandbox Fusion server"),
        (["http://my box:8080/run_code"], "must be the address of a Sandbox Fusion server"),
        (["--tools", "missing.yaml"], "missing.yaml:1: cannot be read"),
        (["--tools", "bad.yaml"], "bad.yaml:1: not YAML"),
        (["dokcer"], "did you mean 'docker'?"),
        (["http://127.0.0.1:1", "--languages", "pyhton"], "did you mean 'python'?"),
    ],
)
def test_wrong_input_exits_with_2_and_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.yaml").write_text("tools: [")
    done = RUN.invoke(app, ["doctor", *arguments])
    assert done.exit_code == 2, done.output
    assert complaint in done.stderr
    assert "Traceback" not in done.output


@pytest.mark.parametrize("skips", ["--quick", "--no-sweep"])
@pytest.mark.parametrize("asks", [["--program", "own.py"], ["--log", "events.ndjson"]])
def test_programs_for_a_sweep_that_is_left_out_are_refused(skips: str, asks: list[str]) -> None:
    refused = RUN.invoke(app, ["doctor", "http://127.0.0.1:9", skips, *asks])
    assert refused.exit_code == 2, refused.output
    assert f"{asks[0]} needs the sweep: leave out {skips}" in refused.stderr
    assert "examining" not in refused.stdout


def test_a_sweep_that_is_both_asked_for_and_left_out_is_refused() -> None:
    refused = RUN.invoke(app, ["doctor", "http://127.0.0.1:9", "--quick", "--sweep"])
    assert refused.exit_code == 2, refused.output
    assert "--quick leaves out the sweep that --sweep asks for: give one of them" in refused.stderr


def test_an_unwritable_report_is_an_error_before_anything_is_examined(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place, why in (
        (tmp_path, "is a folder; give a file"),
        (tmp_path / "file" / "x.json", "cannot be written"),
    ):
        done = RUN.invoke(app, ["doctor", "http://your-box/run_code", "--json", str(place)])
        assert done.exit_code == 2
        assert why in done.stderr
        assert "examining" not in done.stdout  # reported before anything is examined


def test_secrets_of_the_url_never_appear(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    report = tmp_path / "report.json"
    with FakeSandbox() as fake:
        address = (
            fake.url.replace("http://", "http://user:hunter2pass@") + "/run_code?token=t0psecret"
        )
        done = RUN.invoke(app, ["doctor", address, "--json", str(report)])
        gone = RUN.invoke(app, ["doctor", address.replace(str(fake.port), str(closed_port()))])
    assert (done.exit_code, gone.exit_code) == (1, 3)
    everything = done.output + gone.output + report.read_text() + caplog.text
    assert "hunter2pass" not in everything
    assert "t0psecret" not in everything


def test_a_url_replaces_that_of_the_tool_config(sandbox: FakeSandbox, tmp_path: Path) -> None:
    path = tmp_path / "tools.yaml"
    path.write_text(
        "tools: [{class_name: verl.tools.sandbox_fusion_tools.SandboxFusionTool, config: "
        "{sandbox_fusion_url: "
        "'https://xxx.apigateway.volceapi.com/run_code', memory_limit_mb: 4}}]\n"
    )
    placeholder = RUN.invoke(app, ["doctor", "--tools", str(path)])
    assert placeholder.exit_code == 1
    assert "breaks: placeholder-url" in placeholder.stdout
    done = RUN.invoke(app, ["doctor", f"{sandbox.url}/run_code", "--tools", str(path), *QUICK])
    assert done.exit_code == 1
    assert "breaks: memory-limit-breaks" in done.stdout


def test_help_lists_exit_codes_without_the_extras() -> None:
    program = (
        "import sys\nfrom typer.testing import CliRunner\nfrom sfusion.harness.cli import app\n"
        "done = CliRunner().invoke(app, ['doctor', '--help'])\n"
        "assert done.exit_code == 0\nprint(done.stdout)\n"
        "assert not {'ray', 'docker', 'textual'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "Exit code 0" in done.stdout
    for option in ("--tools", "--quick", "--no-sweep", "--packages", "--json"):
        assert option in done.stdout


def test_an_interruption_exits_with_130(
    sandbox: FakeSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sfusion.harness.real.doctor.command.examine", interrupted)
    done = RUN.invoke(app, ["doctor", sandbox.url])
    assert (done.exit_code, done.stderr) == (130, "interrupted\n")


async def test_a_trusted_authority_fixes_the_certificate_finding(tmp_path: Path) -> None:
    import asyncio

    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    async with serving_tls(server_side(authority, "127.0.0.1")) as port:
        command = [warm("sfusion"), "doctor", f"https://127.0.0.1:{port}/run_code"]
        for extra, expected in (
            ({}, "breaks: certificate"),
            (
                {"SSL_CERT_FILE": str(tmp_path / "ca.pem")},
                "breaks: not-found",
            ),
        ):
            child = await asyncio.create_subprocess_exec(
                *command, env={**os.environ, **extra}, stdout=asyncio.subprocess.PIPE
            )
            out, _ = await child.communicate()
            assert child.returncode == 1
            assert expected in out.decode()


def test_a_terminal_gets_colours_and_no_escape_codes_of_the_server() -> None:
    import io

    from sfusion.harness.real.doctor.context import Finding, Severity
    from sfusion.harness.real.doctor.examination import Examination
    from sfusion.harness.real.doctor.settings import settings_of_url

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    finding = Finding("web-page", Severity.BREAKS, "said \x1b[2J", "every call fails", "correct it")
    one = Examination(settings_of_url("http://127.0.0.1:8080"), [finding], reached=True)
    with DoctorReporter(out, 1, "examining") as live:
        live.check_started(CHECKS[0], 1)
        live.announce("load: nothing")
        live.check_ended(CHECKS[0], 1, [finding], "")
        live.stopped(CHECKS[1:2], "why not")
        live.finish([one])
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())
    assert "breaks: web-page" in text
    assert "\\x1b[2J" in text
    assert "1 finding breaks training" in text
    assert "\x1b[1;31m" in out.getvalue()
    assert "\x1b[2J" not in out.getvalue()
    assert exit_code([one]) == 1
