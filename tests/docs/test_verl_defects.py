"""The tests that docs/verl-defects.md points to are there."""

from __future__ import annotations

import re

from tests import ROOT


def test_every_test_named_for_a_defect_exists() -> None:
    page = (ROOT / "docs" / "verl-defects.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", page))
    files = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    written = {name for text in files for name in re.findall(r"def (test_\w+)\(", text)}
    assert len(named) >= 15
    assert named <= written, named - written
