"""Every module belongs to one feature, and a run's seconds are those of its tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

from tests import ROOT, rent


def test_every_declared_path_exists_and_belongs_to_one_feature() -> None:
    known = rent.owners()
    assert [str(path) for path in known if not (ROOT / path).exists()] == []


def test_every_module_belongs_to_a_feature_of_its_own_folder() -> None:
    known = rent.owners()
    product = list(rent.modules(rent.PRODUCT))
    assert len(product) > 400
    for path in product:
        feature = rent.owner_of(path, known)
        assert feature is not None, path
        assert feature.product, f"{path} belongs to {feature.name}, which has no product"
    assert all(rent.owner_of(path, known) for path in rent.modules(["tests"]))


def test_the_nearest_path_decides() -> None:
    known = rent.owners()
    for path, name in (
        ("harness/studies/look/new_module.py", "`look`"),
        ("harness/new_folder/new_module.py", "command line and package"),
        ("sfusion_tools/limiter/core.py", "limiter, `sfusion limiter`"),
    ):
        feature = rent.owner_of(PurePosixPath(path), known)
        assert feature is not None
        assert feature.name == name
    assert rent.owner_of(PurePosixPath("elsewhere.py"), known) is None


def test_a_path_of_two_features_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = (rent.Feature("a", ("harness",), ()), rent.Feature("b", ("harness",), ()))
    monkeypatch.setattr(rent, "FEATURES", twice)
    with pytest.raises(ValueError, match="harness belongs to a and to b"):
        rent.owners()


def test_the_table_of_the_page_has_a_row_for_each_feature() -> None:
    page = rent.PAGE.read_text(encoding="utf-8")
    rows = [line.split("|") for line in page.partition(rent.BEGIN)[2].splitlines()]
    shown = {cells[1].strip() for cells in rows if len(cells) == len(rent.HEADINGS) + 2}
    missing = {feature.name for feature in rent.FEATURES} - shown
    assert not missing, "run `python -m tests.rent --write`"


def test_seconds_come_from_the_file_that_pytest_writes(tmp_path: Path) -> None:
    """The class name of a case is its module, and with a class also that."""
    junit = tmp_path / "junit.xml"
    names = ("tests.harness.plugin.test_sandbox", "tests.test_rent.TestOfSome", "gone")
    cases = "".join(
        f'<testcase classname="{name}" name="test_it" time="{2.0 * number}"/>'
        for number, name in enumerate(names, 1)
    )
    junit.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    seconds = rent.seconds_in(junit)
    assert seconds["pytest plugin"] == 2.0
    assert seconds["tools of the tests"] == 4.0 + 6.0
    assert sum(seconds.values()) == 12.0


def test_what_pytest_itself_writes_is_read(tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--junitxml={junit}",
    ]
    test = "tests/test_rent.py::test_the_nearest_path_decides"
    subprocess.run([*command, test], cwd=ROOT, check=True, capture_output=True)
    assert rent.seconds_in(junit)["tools of the tests"] > 0


def test_seconds_stay_where_no_file_is_given() -> None:
    rents = {"`look`": rent.Rent(1200, 30, 4.0), "`learn`": rent.Rent(10, 5)}
    page = rent.with_table(f"# Title\n{rent.BEGIN}old\n{rent.END}after\n", rent.table(rents))
    assert page.startswith("# Title\n")
    assert page.endswith("after\n")
    assert "old" not in page
    assert "| `look` | 1,200 | 30 | 4 |\n| `learn` | 10 | 5 |  |\n| all | 1,210 | 35 | 4 |" in page
    assert rent.seconds_on(page) == {"`look`": 4.0, "all": 4.0}
    with pytest.raises(ValueError, match="the page needs the lines"):
        rent.with_table("# Title\n", "")
