"""A command loads what it uses: neither formats, nor the rollout driver, nor a Ray cluster for a
page of help."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

VERDICT = "import sfusion.harness.core.verdict"
COMMAND = """
import sys
from sfusion.harness.cli import main

sys.argv = ["sfusion", *{words!r}]
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
"""
LOADED = """
import json, sys
print()
print(json.dumps([name for name in sys.modules if name.partition(".")[0].startswith("sfusion")]))
"""

HEAVY = (
    "sfusion_tools.formats",
    "sfusion_tools.rollout",
    "sfusion.fakes.sglang",
    "sfusion.harness.lab.worlds",
    "sfusion.harness.lab.scenarios",
)
"""Packages that take long to import and that none of these commands needs for its options."""


def loaded_by(program: str) -> list[str]:
    """Return the modules of ours that a program loads in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", program + LOADED], check=True, capture_output=True, text=True
    )
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("program", "most"),
    [
        (VERDICT, 10),
        (COMMAND.format(words=["--help"]), 16),
        (COMMAND.format(words=["judge", "--help"]), 22),
        (COMMAND.format(words=["look", "--help"]), 68),
        (COMMAND.format(words=["doctor", "--help"]), 90),
    ],
    ids=["a verdict", "help", "judge", "look", "doctor"],
)
def test_what_is_loaded_is_bounded(program: str, most: int) -> None:
    """The bounds are what was counted when this was written, with room for a few modules."""
    loaded = loaded_by(program)
    assert [name for name in loaded if name.startswith(HEAVY)] == []
    assert len(loaded) <= most, sorted(loaded)


def test_heavy_modules_are_seen() -> None:
    loaded = loaded_by(COMMAND.format(words=["rollout", "--help"]))
    assert {"sfusion_tools.formats", "sfusion_tools.rollout.driver"} <= set(loaded)
