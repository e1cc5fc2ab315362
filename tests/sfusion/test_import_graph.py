"""Imports point one way."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests import ROOT
from tests.sfusion.graph import cycles, import_graph

pytestmark = pytest.mark.xdist_group("import graph")


def test_no_modules_import_each_other() -> None:
    assert cycles(import_graph()) == []


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [("sfusion_tools", ("sfusion",)), ("sfusion.fakes", ("sfusion.harness",))],
)
def test_packages_import_only_what_is_below_them(package: str, forbidden: tuple[str, ...]) -> None:
    wrong = [
        f"{module} imports {other}"
        for module, others in import_graph().items()
        if _inside(module, package)
        for other in others
        if any(_inside(other, name) for name in forbidden)
    ]
    assert wrong == []


def test_the_process_of_a_limiter_imports_neither_scenarios_nor_fakes() -> None:
    """They take longer to import than Ray itself, and a killed limiter is restarted while calls
    wait for it."""
    left, reached = ["sfusion.harness.lab.worlds.ray_limiter"], set[str]()
    while left:
        reached.add(module := left.pop())
        left += import_graph()[module] - reached
    assert [
        name
        for name in reached
        if _inside(name, "sfusion.fakes") or _inside(name, "sfusion.harness.lab.scenarios")
    ] == []


def test_the_graph_covers_the_packages_and_their_imports() -> None:
    assert len(import_graph()) > 300
    assert "sfusion.fakes.errors" in import_graph()["sfusion.harness.cli"]


def test_cycles_are_found_through_relative_and_deferred_imports(tmp_path: Path) -> None:
    for name, text in {
        "sfusion/__init__.py": "",
        "sfusion/a.py": "from . import b\n",
        "sfusion/b.py": (
            "from importlib import import_module\n\ndef later():\n    import_module('sfusion.c')\n"
        ),
        "sfusion/c.py": "from .a import x\n",
        "sfusion_tools/__init__.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cycles(import_graph(tmp_path)) == [["sfusion.a", "sfusion.b", "sfusion.c"]]


def _inside(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def test_a_class_name_means_one_thing_in_all_packages() -> None:
    places: dict[str, list[str]] = {}
    for path in (
        path
        for package in ("sfusion_tools", "fakes", "harness")
        for path in (ROOT / package).rglob("*.py")
    ):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
    assert len(places) > 500
