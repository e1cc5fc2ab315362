"""The import graph of the packages, read from their source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests import ROOT

Graph = dict[str, set[str]]


@cache
def import_graph(root: Path = ROOT) -> Graph:
    """Map each module to the modules of ours that it imports, anywhere in its source and for type
    checking too."""
    modules = {
        _name(path, root): path
        for top in ("sfusion", "sfusion_tools")
        for path in _sources(root / top)
    }
    return {name: set(_imports(name, path, modules)) - {name} for name, path in modules.items()}


def cycles(graph: Graph) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or through others (Tarjan's
    components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            at = stack.index(module)
            component = stack[at:]
            del stack[at:]
            if len(component) > 1:
                found.append(sorted(component))

    for module in graph:
        if module not in index:
            visit(module)
    return found


def _sources(folder: Path) -> Iterator[Path]:
    """Python files below a folder, through links to folders (which ``rglob`` does not follow)."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name != "__pycache__":
            yield from _sources(path)
        elif path.suffix == ".py":
            yield path


def _name(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _imports(name: str, path: Path, modules: dict[str, Path]) -> Iterator[str]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names = {
                ast.literal_eval(one) for one in node.args[:1] if isinstance(one, ast.Constant)
            }
            yield from names & modules.keys()
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                if whole in modules:
                    yield whole
                elif base in modules:
                    yield base
