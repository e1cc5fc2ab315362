"""The Chinese pages say the same as the English ones, and link to files that exist.

test_snippets.py runs the English blocks; here it is checked that the Chinese ones are equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.docs.blocks import read_page

DOCS = ROOT / "docs"
TRANSLATED = sorted((DOCS / "zh").glob("*.md"))
PAIRS = [
    (ROOT / "README.md", ROOT / "README.zh-CN.md"),
    *((DOCS / path.name, path) for path in TRANSLATED),
]
IDS = [english.stem for english, _ in PAIRS]
pairs = pytest.mark.parametrize(("english", "chinese"), PAIRS, ids=IDS)


def links(path: Path) -> Iterator[str]:
    """Yield where a page links to, as the English page would name it."""
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if link.startswith("README"):
            continue  # each README links to the other
        yield link.removeprefix("../").replace("docs/zh/", "docs/")


def headings(path: Path) -> list[str]:
    """Return the levels of the headings of a page."""
    prose = re.sub(
        r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    return re.findall(r"^#+(?= )", prose, re.MULTILINE)


def table_numbers(path: Path) -> list[list[str]]:
    """Return the numbers in each row of the tables of a page."""
    rows = re.findall(r"^\|.*\|$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return [re.findall(r"\d+(?:[.,]\d+)*", row) for row in rows]


@pairs
def test_both_pages_have_the_same_commands_and_output(english: Path, chinese: Path) -> None:
    ours, theirs = (read_page(path, ROOT) for path in (english, chinese))
    assert [(block.language, block.text, block.not_run) for block in ours.blocks] == [
        (block.language, block.text, block.not_run) for block in theirs.blocks
    ]
    assert ours.files == theirs.files


@pairs
def test_both_pages_have_the_same_links_and_sections(english: Path, chinese: Path) -> None:
    assert sorted(links(english)) == sorted(links(chinese))
    assert headings(english) == headings(chinese)


@pairs
def test_both_pages_have_the_same_numbers_in_their_tables(english: Path, chinese: Path) -> None:
    assert table_numbers(english) == table_numbers(chinese)


@pairs
def test_both_pages_list_the_same_names(english: Path, chinese: Path) -> None:
    named = [
        re.findall(r"^- `(\w+)`", path.read_text(), re.MULTILINE) for path in (english, chinese)
    ]
    assert named[0] == named[1]


@pytest.mark.parametrize("path", [chinese for _, chinese in PAIRS], ids=IDS)
def test_no_chinese_paragraph_is_broken_into_lines(path: Path) -> None:
    # A line break in Markdown is a space, which does not belong between two Chinese characters.
    text = re.sub(
        r"^```.*?^```$|<!--.*?-->",
        "```",
        path.read_text(encoding="utf-8"),
        flags=re.DOTALL | re.MULTILINE,
    )
    broken = r"^.*[\u3000-\u9fff\uff00-\uffef].*\n(?!\n|- |\||\d+\. ).+$"
    assert not re.findall(broken, text, re.MULTILINE)


@pytest.mark.parametrize(
    "path",
    [path for pair in PAIRS for path in pair],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_files_and_sections_that_a_page_links_to_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for link, section in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", text):
        linked = (path.parent / link).resolve() if link else path
        assert linked.is_file(), link
        if section and linked.parent.name == "zh":
            assert f'<a id="{section}"></a>' in linked.read_text(encoding="utf-8"), section
