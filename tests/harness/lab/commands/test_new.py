"""``sfusion new``: the scenario that it writes is valid, explained and green, and nothing is
overwritten."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfusion.harness.cli import app
from sfusion.harness.lab.commands.new import starter
from sfusion.harness.lab.scenarios.model import Scenario


def sfusion(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(one) for one in arguments])
    return done.exit_code, done.output


def test_a_new_scenario_is_valid_and_every_promise_holds(tmp_path: Path) -> None:
    folder = tmp_path / "my scenarios"
    file = folder / "slow-start.yaml"
    assert sfusion("new", "slow-start", "--to", folder) == (
        0,
        f"{file}\nrun it with: sfusion run '{file}' --out runs\n",
    )
    assert sfusion("check", file) == (0, "1 file with 1 cell: all valid\n")
    code, text = sfusion("run", file, "--jobs", 1, "--twice", "-v")
    assert code == 0, text
    assert "held    slow-start" in text
    assert "\n  also held: " in text
    assert "tool_never_raises" in text, "an implied promise, which the file does not name"


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("precious")
    code, text = sfusion("new", "mine", "--to", tmp_path)
    assert code == 2
    assert text.startswith(f"{file} exists already")
    assert file.read_text() == "precious"


@pytest.mark.parametrize(
    "name", ["Mine", "../mine", "1.5", "null", "a: b", "a\nseed: 2", "_mine", ""]
)
def test_a_name_that_the_file_could_not_have_is_refused(tmp_path: Path, name: str) -> None:
    code, text = sfusion("new", name, "--to", tmp_path / "new")
    assert code == 2
    assert "is not a name: use lowercase letters" in text
    assert not list(tmp_path.rglob("*"))


def test_a_folder_that_cannot_be_written_exits_with_3(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, text = sfusion("new", "mine", "--to", tmp_path / "file" / "below")
    assert code == 3
    assert "cannot be written" in text


def test_a_comment_explains_every_key_and_every_field_is_named() -> None:
    text = starter("x", "x.yaml")
    lines = text.splitlines()
    keys = [
        number
        for number, line in enumerate(lines)
        if re.match(r" *(- )?[a-z_]+:|  - [a-z_]+$", line)
    ]
    assert len(keys) > 25
    for number in keys:
        assert lines[number - 1].lstrip().startswith("# "), (
            f"no sentence before {lines[number].strip()!r}"
        )
    missing = [
        key
        for key in Scenario.model_fields
        if key not in ("cell", "observed") and not re.search(rf"\b{key}\b", text)
    ]
    assert not missing, missing
