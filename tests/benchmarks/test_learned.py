"""The figures of docs/learning.md: the page has the rows that are made, and making them works."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import learned
from tests import ROOT

PAGE = ROOT / "docs" / "learning.md"


def test_the_page_has_a_table_with_the_rows_that_are_made() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for _, heading in learned.TABLES.values():
        assert learned.replaced(page, heading, "") != page
    rows = [
        line.split(" | ")[0].removeprefix("| ")
        for line in page.splitlines()
        if line.startswith("| ")
    ]
    assert {*learned.SETTINGS, *learned.HANDLINGS} <= set(rows)
    assert f"| setting | {' | '.join(learned.FAILURES)} |" in page


@pytest.mark.parametrize("name", ["provoked", "push"])
def test_the_page_has_the_tables_that_are_made(name: str) -> None:
    """The cheap ones in full; `python -m benchmarks.learned` makes all of them."""
    make, _ = learned.TABLES[name]
    assert learned.table(make(20)) in PAGE.read_text(encoding="utf-8")


def test_the_page_has_the_thresholds_that_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the closed form's assumptions, and of the usual case, in which skills learn."""
    names = ("nothing: skills stand still", "skills learn, without the tool up to 1")
    monkeypatch.setattr(learned, "MOVED", {name: learned.MOVED[name] for name in names})
    _, *rows = learned.table(learned.moved(1)).splitlines()
    page = PAGE.read_text(encoding="utf-8")
    assert all(row in page for row in rows[1:])
    assert len(rows) == 3


def test_tables_are_made_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With small trainings: a limiter as wide as the quota learns as without faults, and a guard
    stops."""
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(learned, "TRAINING", {"steps": 3, "prompts": 1, "group": 8})
    monkeypatch.setattr(
        learned, "FAILURES", {"quota": {"model": {"kind": "quota", "in_flight": 4}}}
    )
    monkeypatch.setattr(
        learned, "SETTINGS", {name: learned.SETTINGS[name] for name in list(learned.SETTINGS)[:2]}
    )
    assert learned.main(["settings", "push", "--seeds", "1", "--write", str(page)]) == 0
    made = page.read_text(encoding="utf-8")
    assert "| limiter: `rate_limit: 4` | as without faults |\n" in made
    assert "| nothing | 0." in made
    assert made.count("| 60 % |") == PAGE.read_text(encoding="utf-8").count("| 60 % |")
    assert "What one step pushes" in capsys.readouterr().out
