"""The three findings that docs/lifecycle.md begins with, with the vendors' own SDKs."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests import ROOT
from tests.docs.blocks import read_page

PAGE = ROOT / "docs" / "lifecycle.md"
SDKS = {"e2b": "e2b", "daytona": "daytona", "openenv": "openenv"}


@pytest.mark.parametrize("service", SDKS)
def test_a_finding_is_what_its_command_prints(service: str, tmp_path: Path) -> None:
    pytest.importorskip(SDKS[service], reason="needs the SDK: tox -e lifecycle")
    if service == "e2b" and version("e2b").startswith("2.10."):
        pytest.skip("this version sends no create again")
    page = read_page(PAGE, ROOT)
    for name, text in page.files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    client, command = (block.text for block in page.blocks if service in block.not_run.lower())
    (tmp_path / f"{service}_episode.py").write_text(client, encoding="utf-8")

    words, finding = command.strip().removeprefix("sfusion ").split("   # ")
    arguments = [sys.executable, "-m", "sfusion", *words.split()]
    run = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True)

    assert run.returncode == 1, run.stdout + run.stderr
    pattern = re.escape(finding).replace("…", ".*")
    assert re.search(pattern, run.stdout), run.stdout
