"""What docs/fake-sandbox.md shows really works, and what it lists is complete."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.faults import KINDS, Rule, parse_rules
from fakes.sandbox.program import Program

PAGE = (Path(__file__).parents[2] / "docs" / "fake-sandbox.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("code", [code for language, code in SNIPPETS if language == "python"])
def test_a_python_snippet_runs(code: str, tmp_path: Path) -> None:
    file = tmp_path / "test_snippet.py"
    file.write_text(code)
    how = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"] if "def test_" in code else []
    done = subprocess.run([sys.executable, *how, str(file)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_yaml_snippets_are_rules() -> None:
    texts = [code for language, code in SNIPPETS if language == "yaml"]
    assert texts
    assert all(parse_rules(text) for text in texts)


def test_every_kind_condition_and_hint_is_explained() -> None:
    for name in [*KINDS, *Rule.model_fields, *Program.__dataclass_fields__]:
        if name not in ("name", "phase", "what", "files"):
            assert f"`{name}`" in PAGE, name


def test_the_phases_of_every_kind_are_right() -> None:
    for kind, action in KINDS.items():
        rows = [line for line in PAGE.splitlines() if line.startswith(f"| `{kind}`") and line.count("|") == 4]
        (row,) = rows
        assert row.rstrip(" |").endswith("| " + ", ".join(action.phases)), row
