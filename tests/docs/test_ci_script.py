"""CI runs what the README tells people to run."""

from __future__ import annotations

import re

from tests import ROOT

COMMAND = "python3 -m venv .venv && .venv/bin/pip install -c constraints.txt tox && .venv/bin/tox"


def test_the_ci_script_runs_the_test_command_of_the_readme() -> None:
    assert f"\n{COMMAND}\n" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"\n{COMMAND}\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_every_workflow_installs_tox_as_the_test_command_does() -> None:
    found = [
        arguments
        for path in (ROOT / ".github" / "workflows").glob("*.yml")
        for arguments in re.findall(r"pip install (.*\btox)\b", path.read_text(encoding="utf-8"))
    ]
    assert set(found) == {"-c constraints.txt tox"}
