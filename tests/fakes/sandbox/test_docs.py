"""What docs/fake-sandbox.md lists is complete; its examples are run with those of all pages, in tests/docs."""

from __future__ import annotations

from sfusion.fakes.faults import KINDS, Rule
from sfusion.fakes.sandbox.program import ScriptedProgram
from tests import ROOT

PAGE = (ROOT / "docs" / "fake-sandbox.md").read_text(encoding="utf-8")


def test_every_kind_condition_and_hint_is_explained() -> None:
    for name in [*KINDS, *Rule.model_fields, *ScriptedProgram.model_fields]:
        if name not in ("name", "phase", "what", "files"):
            assert f"`{name}`" in PAGE, name


def test_the_phases_of_every_kind_are_right() -> None:
    for kind, action in KINDS.items():
        rows = [line for line in PAGE.splitlines() if line.startswith(f"| `{kind}`") and line.count("|") == 4]
        (row,) = rows
        assert row.rstrip(" |").endswith("| " + ", ".join(action.phases)), row
