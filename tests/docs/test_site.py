"""The docs site shows every page. `tox -e docs` builds it, strictly, which also checks all links
and anchors."""

from __future__ import annotations

import re

from tests import ROOT


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    hooks = (ROOT / "docs" / "site_hooks.py").read_text(encoding="utf-8")
    shown = re.findall(r": ([\w/-]+\.md)\b", text.partition("\nnav:\n")[2])
    made = set(re.findall(r'"([a-z]+\.md)"', hooks))
    docs = ROOT / "docs"
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    assert sorted(shown) == sorted(pages | made)
    assert {"index.md", "zh.md", "reference.md"} < made
    assert all(
        (ROOT / name).is_file() for name in re.findall(r"generated from ([\w.-]+\.md)", text)
    )
