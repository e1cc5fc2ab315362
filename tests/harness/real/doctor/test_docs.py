"""Every finding is documented and tested."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests import ROOT

MAKERS = {"breaks", "hurts", "note", "make"}


def found_in_source() -> set[str]:
    """The ids of all findings that the source creates."""
    found: set[str] = set()
    for path in (ROOT / "harness" / "real" / "doctor").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in MAKERS
                and node.args
            ):
                found |= {
                    one.value
                    for one in ast.walk(node.args[0])
                    if isinstance(one, ast.Constant) and isinstance(one.value, str)
                }
    return found


def test_the_docs_page_lists_exactly_the_findings_in_the_source() -> None:
    page = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`([a-z0-9-]+)`", page.partition("## Findings")[2]))
    assert documented == found_in_source(), "docs/doctor.md must name every finding"


def test_every_finding_has_a_test_that_names_it() -> None:
    tests = "".join(
        path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py")
    )
    untested = {id for id in found_in_source() if f'"{id}"' not in tests}
    assert untested == set(), "every finding needs a test in tests/harness/real/doctor"
