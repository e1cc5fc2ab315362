"""CI runs what the README tells people to run."""

from __future__ import annotations

from tests import ROOT


def test_the_ci_script_runs_the_test_command_of_the_readme() -> None:
    command = "python3 -m venv .venv && .venv/bin/pip install -c constraints.txt tox && .venv/bin/tox"
    assert f"$ {command}\n" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert (ROOT / ".ci" / "run").read_text(encoding="utf-8").endswith(f"\n{command}\n")
