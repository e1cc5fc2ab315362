"""The snippets of docs/fake-sglang.md run and print what the page shows."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "fake-sglang.md"
SNIPPETS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_every_python_block_shows_what_it_prints() -> None:
    assert PAGE.read_text(encoding="utf-8").count("```python") == len(SNIPPETS) > 3


@pytest.mark.parametrize(("code", "shown"), SNIPPETS, ids=range(len(SNIPPETS)))
def test_snippet_prints_what_the_page_shows(code: str, shown: str) -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, str(PAGE), "exec"), {"__name__": "docs"})
    assert out.getvalue() == shown
