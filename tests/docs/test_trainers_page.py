"""The table of docs/trainers.md is the one that `python -m tests.trainers` compares with."""

from __future__ import annotations

from tests import ROOT
from tests.trainers.__main__ import updated


def test_the_table_is_up_to_date() -> None:
    page = (ROOT / "docs/trainers.md").read_text(encoding="utf-8")
    assert updated(page) == page, "update it: python -m tests.trainers --write"
