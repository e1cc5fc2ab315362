"""``sfusion rollout`` and the pytest plugin with containers."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfusion.harness.cli import app
from tests.harness.plugin.conftest import OTHERS
from tests.harness.plugin.test_sandbox import SUITE

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker"), pytest.mark.timeout(400)]


def test_rollout_uses_two_containers_and_retries_injected_faults(
    sandbox_image: str, tmp_path: Path
) -> None:
    faults = tmp_path / "faults.yaml"
    faults.write_text("- {first: 1, what: {status: 503}}\n")
    options = ["--sandbox", f"docker:{sandbox_image}"] * 2 + ["--faults", str(faults)]
    done = CliRunner().invoke(app, ["rollout", "--problems", "4", "--out", str(tmp_path), *options])
    assert done.exit_code == 0, done.output
    assert "4 samples in" in done.stdout
    assert "calls: ok 4" in done.stdout, "calls that failed in the proxies were retried"
    assert "docker-2: ready at http://127.0.0.1:" in done.stderr


def test_sandbox_fixture_proxies_a_container(pytester: pytest.Pytester, sandbox_image: str) -> None:
    pytester.makepyfile(SUITE)
    done = pytester.runpytest_inprocess(*OTHERS, "--sfusion-sandbox", f"docker:{sandbox_image}")
    done.assert_outcomes(passed=3)
    done.stdout.fnmatch_lines(["docker-1: ready at http://127.0.0.1:*"])
