"""docs/python-api.md lists every module with public names, and examples use no others."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from tests import ROOT
from tests.sfusion.graph import import_graph

PAGE = (ROOT / "docs" / "python-api.md").read_text(encoding="utf-8")
DOTTED = set(re.findall(r"`(sfusion[a-z_]*(?:\.\w+)+)`", PAGE))
MODULES = [
    name
    for row in re.findall(r"^\| (`.*`) \|", PAGE, flags=re.MULTILINE)
    for name in re.findall(r"`([\w.]+)`", row)
]
"""The first column of the table."""


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_every_name_that_it_exports(module: str) -> None:
    names = import_module(module).__all__
    assert len(set(names)) == len(names)
    assert all(hasattr(import_module(module), name) for name in names)


@pytest.mark.xdist_group("import graph")
def test_every_package_with_public_names_is_on_the_page() -> None:
    packages = {
        name
        for name in import_graph()
        if (ROOT / name.replace(".", "/") / "__init__.py").is_file()
        and hasattr(import_module(name), "__all__")
    }
    assert packages - set(MODULES) == set()


def test_sfusion_imports_public_names_on_first_use() -> None:
    import sfusion

    assert set(dir(sfusion)) >= set(sfusion.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'FakeSandbx'"):
        sfusion.FakeSandbx  # type: ignore[attr-defined]  # noqa: B018


def test_every_dotted_name_on_the_page_exists() -> None:
    for name in DOTTED:
        _resolve(name)


def test_examples_import_only_public_names() -> None:
    listed = DOTTED | {
        f"{module}.{name}" for module in MODULES for name in import_module(module).__all__
    }
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        if path.name == "extending.md":
            continue  # for people who change the packages themselves
        for module, names in re.findall(
            r"^from (sfusion[\w.]*) import ([\w, ]+?) *(?:#.*)?$",
            path.read_text("utf-8"),
            re.MULTILINE,
        ):
            used = {f"{module}.{name.strip()}" for name in names.split(",")}
            assert used <= listed or module.endswith(".errors"), f"{path.name} uses {used - listed}"


def _resolve(name: str) -> object:
    try:
        return import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        return getattr(import_module(module), attribute)
