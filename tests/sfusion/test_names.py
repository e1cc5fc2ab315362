"""A name means one thing, wherever it stands."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests import ROOT


def test_a_class_name_means_one_thing_in_all_packages() -> None:
    places: dict[str, list[str]] = {}
    for path, tree in _modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(path)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
    assert len(places) > 500


@pytest.mark.parametrize(
    ("name", "home"),
    [
        ("COMPILED", "sfusion_tools/sandbox/program.py"),
        ("Event", "harness/core/journal.py"),
        ("CALL_MARK", "fakes/call_mark.py"),
        ("OnEvent", "sfusion_tools/sandbox/client.py"),
        ("PROGRAM_OUTCOMES", "sfusion_tools/outcome.py"),
    ],
)
def test_what_many_modules_use_is_defined_once(name: str, home: str) -> None:
    assert [path for path, tree in _modules().items() if name in _defined_in(tree)] == [home]


def test_the_mark_of_a_call_is_written_in_one_module() -> None:
    written = [path for path, tree in _modules().items() if "sfusion:call=" in _texts_of(tree)]
    assert written == ["fakes/call_mark.py"]


def test_only_a_client_is_judged() -> None:
    """Promises are checked, and rewards are scored."""
    judging = {
        path
        for path, tree in _modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "judge"
    }
    assert judging == {"harness/trial/command.py", "harness/trial/trial.py"}


@cache
def _modules() -> dict[str, ast.Module]:
    """Return the modules of the packages by their paths."""
    files = [
        path
        for package in ("sfusion_tools", "fakes", "harness")
        for path in sorted((ROOT / package).rglob("*.py"))
    ]
    return {_place(path): ast.parse(path.read_text(encoding="utf-8")) for path in files}


def _place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _defined_in(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module defines, without those that it imports."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                yield from (part.id for part in ast.walk(target) if isinstance(part, ast.Name))


def _texts_of(tree: ast.Module) -> str:
    """Return the texts of a module but for its docstrings."""
    documenting = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return "\n".join(
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in documenting
    )
