"""``sfusion view``: messages and exit codes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfusion.harness.cli import app

RUN = CliRunner()


def test_a_directory_without_dumps_exits_with_2(tmp_path: Path) -> None:
    done = RUN.invoke(app, ["view", str(tmp_path)])
    assert done.exit_code == 2
    assert "has no .jsonl file" in done.stderr


@pytest.mark.timeout(30)
def test_without_a_terminal_it_ends_and_names_what_works(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text('{"input": "?", "output": "!", "score": 1.0, "step": 1}\n')
    done = RUN.invoke(app, ["view", str(tmp_path)])
    assert done.exit_code == 2
    assert "needs a terminal" in done.stderr
    assert "sfusion look" in done.stderr


def test_a_missing_textual_package_exits_with_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [
        name
        for name in sys.modules
        if name.split(".")[0] == "textual" or name == "sfusion.harness.rollouts.viewer.app"
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "textual", None)
    done = RUN.invoke(app, ["view", str(tmp_path)])
    assert done.exit_code == 3
    assert "pip install 'sfusion[view]'" in done.stderr
