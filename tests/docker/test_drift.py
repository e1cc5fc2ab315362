"""Recording a container, and comparing the fake with it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfusion.harness.cli import app
from sfusion.harness.real.probes.cassette import read_recording

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker"), pytest.mark.timeout(400)]

SOME = ["-k", "http/ or validation/ or results/ or memory/ or languages/cpp"]


def test_the_fake_does_not_differ_from_a_container(sandbox_image: str) -> None:
    done = CliRunner().invoke(app, ["drift", f"docker:{sandbox_image}", "--quick", *SOME])
    assert done.exit_code == 0, done.output
    assert f"fake 2026-07 against docker:{sandbox_image}" in done.stdout
    assert "0 breaking, 0 visible, 0 cosmetic" in done.stdout
    if shutil.which("g++"):
        assert f"not comparable: docker:{sandbox_image} has no g++: languages/cpp, " in done.stdout


def test_a_container_is_recorded(sandbox_image: str, tmp_path: Path) -> None:
    out = tmp_path / "container.jsonl"
    done = CliRunner().invoke(
        app, ["drift", f"docker:{sandbox_image}", "--record", str(out), "-k", "results/exit"]
    )
    assert done.exit_code == 0, done.output
    meta = json.loads(out.read_text().partition("\n")[0])["cassette"]
    assert (meta["target"], meta["probes"]) == (f"docker:{sandbox_image}", len(read_recording(out)))
