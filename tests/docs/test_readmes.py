"""README.md and README.zh-CN.md say the same, and link to files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import ROOT
from tests.docs.blocks import read_page

ENGLISH, CHINESE = (ROOT / name for name in ("README.md", "README.zh-CN.md"))


def test_both_readmes_have_the_same_commands_and_output() -> None:
    # test_snippets.py runs the English one.
    english, chinese = (read_page(path, ROOT) for path in (ENGLISH, CHINESE))
    shown = [[(block.language, block.text) for block in page.blocks] for page in (english, chinese)]
    assert shown[0] == shown[1]
    assert len(shown[0]) >= 5
    assert english.files == chinese.files


def test_both_readmes_have_the_same_links_and_sections() -> None:
    def links(text: str) -> list[str]:
        found = re.findall(r"\]\(([^)\s]+)\)", text)
        return sorted(link for link in found if not link.startswith("README"))

    english, chinese = (path.read_text(encoding="utf-8") for path in (ENGLISH, CHINESE))
    assert links(english) == links(chinese)
    assert len(re.findall(r"^#", english, re.MULTILINE)) == len(
        re.findall(r"^#", chinese, re.MULTILINE)
    )


def test_no_chinese_paragraph_is_broken_into_lines() -> None:
    # A line break in Markdown is a space, which does not belong between two Chinese characters.
    text = re.sub(
        r"^```.*?^```$|<!--.*?-->",
        "```",
        CHINESE.read_text(encoding="utf-8"),
        flags=re.DOTALL | re.MULTILINE,
    )
    assert not re.findall(r"^.*[\u3000-\u9fff\uff00-\uffef].*\n(?!\n|- |\|).+$", text, re.MULTILINE)


@pytest.mark.parametrize("path", [ENGLISH, CHINESE], ids=lambda path: path.name)
def test_files_that_the_readme_links_to_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for link in re.findall(r"\]\((?!https?:)([^)#\s]+)", text):
        assert (ROOT / link).is_file(), link
