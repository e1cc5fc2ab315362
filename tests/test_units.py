"""The order in which workers get files and groups of tests."""

from __future__ import annotations

from tests import ROOT
from tests.units import LONGEST, longest_of


def test_the_longest_files_come_first_then_groups_by_their_tests() -> None:
    units = {"tests/test_a.py": [1] * 9, "browser": [1], LONGEST[1]: [1], "ray": [1, 1]}
    taken = []
    while (name := longest_of(units)) is not None:
        taken.append(name)
        del units[name]
    assert taken == [LONGEST[1], "ray", "browser"]
    assert list(units) == ["tests/test_a.py"]


def test_the_longest_files_exist() -> None:
    assert [name for name in LONGEST if not (ROOT / name).is_file()] == []
