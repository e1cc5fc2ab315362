"""docs/tool-call-formats.md is complete and correct."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import sfusion_tools.formats
from sfusion_tools.formats import format_names, get_format
from sfusion_tools.formats.jsontext import DEEPEST
from tests import ROOT

DOC = (ROOT / "docs" / "tool-call-formats.md").read_text(encoding="utf-8")


def test_the_example_in_the_docs_runs() -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", DOC, re.DOTALL)
    exec(compile(snippet, "docs/tool-call-formats.md", "exec"), {})


def rows() -> Iterator[str]:
    """The table of formats; run this module to print it."""
    yield "| name, alias | a call |"
    yield "|---|---|"
    for form in map(get_format, format_names()):
        call = form.example.replace("\n", "⏎").replace("|", "\\|").replace("`", "'")
        yield f"| {', '.join(f'`{word}`' for word in (form.name, *form.aliases))} | `{call}` |"


def test_the_docs_list_every_format_with_an_example() -> None:
    assert "\n".join(rows()) in DOC


def test_the_docs_explain_every_kind_of_problem() -> None:
    package = Path(sfusion_tools.formats.__file__).parent
    source = "".join(file.read_text(encoding="utf-8") for file in package.rglob("*.py"))
    kinds = set(re.findall(r'(?:Flaw|problem)\(\s*"([a-z_]+)"', source))
    assert len(kinds) > 25
    assert sorted(kind for kind in kinds if f"`{kind}`" not in DOC) == []


def test_the_docs_state_the_bound_of_nesting() -> None:
    assert f"nested deeper than {DEEPEST} levels" in DOC


if __name__ == "__main__":
    sys.stdout.write("\n".join(rows()) + "\n")
