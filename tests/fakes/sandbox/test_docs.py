"""The lists in docs/fake-sandbox.md are complete; tests/docs runs the examples of all pages."""

from __future__ import annotations

from sfusion.fakes.faults import KINDS, Rule
from sfusion.fakes.sandbox.program import ScriptedProgram
from tests import ROOT

PAGE = (ROOT / "docs" / "fake-sandbox.md").read_text(encoding="utf-8")


def test_page_explains_every_kind_condition_and_hint() -> None:
    for name in [*KINDS, *Rule.model_fields, *ScriptedProgram.model_fields]:
        if name not in ("name", "phase", "what", "files"):
            assert f"`{name}`" in PAGE, name


def test_page_lists_the_phases_of_every_kind() -> None:
    for kind, action in KINDS.items():
        rows = [
            line
            for line in PAGE.splitlines()
            if line.startswith(f"| `{kind}`") and line.count("|") == 4
        ]
        (row,) = rows
        assert row.rstrip(" |").endswith("| " + ", ".join(action.phases)), row
