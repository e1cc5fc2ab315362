"""The pytest fixtures, used in a typical test suite."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SUITE = """
import json
import urllib.request

import pytest

from sfusion_tools.sandbox.fleet import process_fleet


def run(url, code):
    body = json.dumps({"code": code, "language": "python"}).encode()
    request = urllib.request.Request(url + "/run_code", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())


def test_it_answers(fake_sandbox):
    answer = run(fake_sandbox.url, '# sfusion:call=a prints="hi"')
    assert answer["run_result"]["stdout"] == "hi"
    assert fake_sandbox.ledger.executions("a") == 1


def test_it_fails_on_command(fake_sandbox):
    fake_sandbox.set_faults([{"what": {"status": 503}}])
    with pytest.raises(urllib.error.HTTPError, match="503"):
        run(fake_sandbox.url, "x")


@pytest.mark.parametrize("fake_sandbox", [{"scripts": [{"prints": "scripted"}]}], indirect=True)
def test_options_come_by_parametrisation(fake_sandbox):
    assert run(fake_sandbox.url, "x")["run_result"]["stdout"] == "scripted"


def test_a_sandbox_fails(fake_sandbox):
    process_fleet().endpoint("http://127.0.0.1:1").failures = 1


def test_the_next_one_on_its_port_is_not_blamed_for_it():
    assert process_fleet().endpoint("http://127.0.0.1:1").failures == 0


def test_several_for_the_whole_session(make_fake_sandbox):
    a, b = make_fake_sandbox(), make_fake_sandbox(profile="2025-06")
    assert a.url != b.url
"""


def _pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:asyncio",
            "-W",
            "error",
            *arguments,
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_fixtures_come_with_the_installed_package(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    done = _pytest(tmp_path)
    assert "6 passed" in done.stdout, done.stdout + done.stderr


def test_plugin_does_nothing_unless_used(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\ndef test_nothing_was_loaded():\n"
        "    assert not [name for name in sys.modules if name.split('.')[0] in ('fakes', "
        "'aiohttp', 'ray')]\n"
    )
    done = _pytest(tmp_path, "-p", "no:schemathesis", "-p", "no:anyio")
    assert "1 passed" in done.stdout, done.stdout + done.stderr
