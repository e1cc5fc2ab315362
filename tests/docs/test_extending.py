"""CONTRIBUTING.md and the worked examples of docs/extending.md are followed in a copy of the repository."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.docs.blocks import Block, Page, read_page
from tests.docs.checks import try_block

TEXT = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
SECTIONS = re.split(r"^(?=##+ )", TEXT, flags=re.MULTILINE)
EXAMPLES = {section.partition("\n")[0].strip("# "): section for section in SECTIONS if "<!-- snippet: " in section}
PAGES = EXAMPLES | {"CONTRIBUTING.md": (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")}


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the repository that the commands of an example import; with its bytecode, so that they start fast."""
    ignored = shutil.ignore_patterns(".*")
    folder = Path(shutil.copytree(ROOT, tmp_path / "copy", symlinks=True, ignore=ignored))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("title", PAGES)
def test_worked_example_passes_in_a_copy_of_the_repository(title: str, tmp_path: Path, copy: Path) -> None:
    (tmp_path / "extending.md").write_text(PAGES[title], encoding="utf-8")
    page = read_page(tmp_path / "extending.md", tmp_path)
    for name, content in page.files.items():
        assert not (copy / name).exists(), f"{name} exists already"
        (copy / name).write_text(content, encoding="utf-8")
    wrong = [f"{title}, {block.place}: {problem}" for block in _tried(page) if (problem := try_block(block, copy))]
    assert not wrong, "\n\n".join(wrong)


def test_every_kind_of_addition_has_a_worked_example() -> None:
    wanted = {"fault", "promise", "format", "doctor finding", "command", "scenario field"}
    assert {title.removeprefix("Add a ").removeprefix("tool-call ") for title in EXAMPLES if "Add a" in title} == wanted


def _tried(page: Page) -> list[Block]:
    return [block for block in page.blocks if not block.not_run and block.text not in page.files.values()]


def test_the_text_names_the_file_of_every_block() -> None:
    """Renderers hide the comments that the tests follow, so the paragraph before each must name the file."""
    for found in re.finditer(r"([^\n]+)\n\n<!-- snippet: (?:file|add to) (\S+)(?: after [^\n]*)? -->\n```", TEXT):
        assert f"`{found[2]}`" in found[1], f"nothing names {found[2]} in {found[1]!r}"
    assert len(re.findall(r"<!-- snippet: (?:file|add to) \S+(?: after [^\n]*)? -->\n```", TEXT)) > 15
