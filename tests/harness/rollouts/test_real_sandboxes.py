"""``sfusion rollout --sandbox`` with one or several addresses, with and without faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.cli import app

pytestmark = pytest.mark.xdist_group("real sandboxes")

RUN = CliRunner()


@pytest.fixture(scope="module")
def servers() -> Iterator[list[FakeSandbox]]:
    with FakeSandbox(executor="python") as one, FakeSandbox(executor="python") as two:
        yield [one, two]


def rollout(out: Path, *options: str) -> str:
    done = RUN.invoke(app, ["rollout", "--problems", "4", "--out", str(out), *options])
    assert done.exit_code == 0, done.output
    return done.output


def test_several_sandboxes_share_the_calls(servers: list[FakeSandbox], tmp_path: Path) -> None:
    for server in servers:
        server.forget()
    options = [part for server in servers for part in ("--sandbox", f"{server.url}/run_code")]
    assert "calls: ok 4" in rollout(tmp_path / "real", *options)
    assert [server.ledger.arrived for server in servers] == [2, 2]
    rollout(tmp_path / "fake")
    assert (tmp_path / "real" / "1.jsonl").read_bytes() == (
        tmp_path / "fake" / "1.jsonl"
    ).read_bytes()


def test_faults_are_injected_in_front_of_a_real_sandbox(
    servers: list[FakeSandbox], tmp_path: Path
) -> None:
    faults = tmp_path / "faults.yaml"
    faults.write_text("- {what: {status: 422}}\n")
    servers[0].forget()
    printed = rollout(tmp_path, "--sandbox", servers[0].url, "--faults", str(faults))
    assert "calls: bad_response 12" in printed, "four requests, three calls each"
    assert servers[0].ledger.arrived == 0


@pytest.mark.parametrize(
    ("typed", "code", "message"),
    [
        ("docker:", 2, "docker: lacks an image"),
        ("https://xxx.corp/run_code", 2, "'https://xxx.corp' is a placeholder"),
        ("http://127.0.0.1:1", 3, "nothing answers at http://127.0.0.1:1: connection refused"),
    ],
)
def test_an_unusable_sandbox_is_reported(
    tmp_path: Path, typed: str, code: int, message: str
) -> None:
    done = RUN.invoke(
        app, ["rollout", "--problems", "1", "--out", str(tmp_path), "--sandbox", typed]
    )
    assert done.exit_code == code
    assert done.stderr.startswith(message)


def test_fake_and_real_sandboxes_cannot_be_mixed(
    servers: list[FakeSandbox], tmp_path: Path
) -> None:
    options = ["--sandbox", "fake", "--sandbox", servers[0].url]
    done = RUN.invoke(app, ["rollout", "--problems", "1", "--out", str(tmp_path), *options])
    assert done.exit_code == 2
    assert "fake is not a real sandbox" in done.stderr
