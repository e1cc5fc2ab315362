"""CONTRIBUTING.md and the worked examples of docs/extending.md are followed in a copy of the
repository."""

from __future__ import annotations

import re
import shutil
from functools import partial
from pathlib import Path

import pytest

from tests import ROOT
from tests.docs import checks
from tests.docs.blocks import Block, Page, read_page
from tests.docs.checks import try_block
from tests.warm import warm

TEXT = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
SECTIONS = re.split(r"^(?=##+ )", TEXT, flags=re.MULTILINE)
EXAMPLES = {
    section.partition("\n")[0].strip("# "): section
    for section in SECTIONS
    if "<!-- snippet: " in section
}
PAGES = EXAMPLES | {"CONTRIBUTING.md": (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")}


def test_worked_examples_pass_in_a_copy_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them in one copy, whose commands are forked from one interpreter: it is started after
    the additions."""
    ignored = shutil.ignore_patterns(".*", "*.pyc.*")  # the latter: bytecode that is being written
    copy = Path(shutil.copytree(ROOT, tmp_path / "copy", symlinks=True, ignore=ignored))
    monkeypatch.setattr(checks, "warm", partial(warm, checkout=copy))
    pages = {}
    for title, text in PAGES.items():
        (tmp_path / "extending.md").write_text(text, encoding="utf-8")
        pages[title] = read_page(tmp_path / "extending.md", tmp_path)
        for name, content in pages[title].files.items():
            assert not (copy / name).exists(), f"{name} exists already"
            (copy / name).write_text(content, encoding="utf-8")
    blocks = [(title, block) for title, page in pages.items() for block in _tried(page)]
    blocks.sort(key=lambda one: not one[1].adds_to)
    wrong = [
        f"{title}, {block.place}: {problem}"
        for title, block in blocks
        if (problem := try_block(block, copy))
    ]
    assert not wrong, "\n\n".join(wrong)


def test_every_kind_of_addition_has_a_worked_example() -> None:
    wanted = {"fault", "promise", "format", "doctor finding", "command", "scenario field"}
    assert {
        title.removeprefix("Add a ").removeprefix("tool-call ")
        for title in EXAMPLES
        if "Add a" in title
    } == wanted


MOST_FILES = {
    "fault": 2,
    "promise": 3,
    "tool-call format": 0,
    "doctor finding": 2,
    "command": 1,
    "scenario field": 2,
}
"""How many files of the product and of scenarios an addition touches; its tests and docs are beside
them."""


@pytest.mark.parametrize("addition", MOST_FILES)
def test_an_addition_touches_few_files(addition: str) -> None:
    touched = set(re.findall(r"<!-- snippet: (?:file|add to) (\S+)", EXAMPLES[f"Add a {addition}"]))
    product = {
        file
        for file in touched
        if file.split("/")[0] in ("fakes", "harness", "scenarios", "sfusion_tools")
    }
    assert min(1, MOST_FILES[addition]) <= len(product) <= MOST_FILES[addition], sorted(product)


def _tried(page: Page) -> list[Block]:
    return [
        block
        for block in page.blocks
        if not block.not_run and block.text not in page.files.values()
    ]


def test_the_text_names_the_file_of_every_block() -> None:
    """Renderers hide the comments that the tests follow, so the paragraph before each must name the
    file."""
    for found in re.finditer(
        r"([^\n]+)\n\n<!-- snippet: (?:file|add to) (\S+)(?: (?:after|before) [^\n]*)? -->\n```",
        TEXT,
    ):
        assert f"`{found[2]}`" in found[1], f"nothing names {found[2]} in {found[1]!r}"
    assert (
        len(
            re.findall(
                r"<!-- snippet: (?:file|add to) \S+(?: (?:after|before) [^\n]*)? -->\n```", TEXT
            )
        )
        > 15
    )


def test_every_path_that_contributing_names_exists() -> None:
    named = set(
        re.findall(
            r"`((?:benchmarks|fakes|harness|scenarios|sfusion_tools|tests)/[\w./-]*)`",
            PAGES["CONTRIBUTING.md"],
        )
    )
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
    assert len(named) > 40
