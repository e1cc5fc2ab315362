"""How much a line of our code says: ``python -m tests.density [FOLDER…]`` prints it per folder.

Read down, code is understood at once; packed, it must be decoded. These figures count packing, so
that a change of it is seen. They are not limits: ruff bounds complexity and the length of a line.
``--worst N`` lists the functions with the most branches, and ``--packed`` every place that assigns
unrelated values in one statement or passes six or more values by position.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests import ROOT

PACKAGES = ("sfusion_tools", "fakes", "harness", "sfusion", "benchmarks")
COMPLEX = 21
"""From here on a function has grade D of radon, whose way of counting this follows."""
POSITIONAL = 6
"""A call with this many values by position cannot be read without its definition (chosen)."""
HEADINGS = (
    "folder",
    "lines",
    "nodes per line",
    "unrelated values / 1,000",
    "conditional / 1,000",
    "comprehensions / 1,000",
    "6+ positional / 1,000",
    "functions D or worse",
    "loops over `one`",
)

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.Assert,
    ast.match_case,
)


@dataclass
class Density:
    """The figures of some modules."""

    lines: int = 0
    nodes: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    functions: list[tuple[int, str]] = field(default_factory=list)
    """Branches and place of every function."""
    packed: list[str] = field(default_factory=list)

    def count_module(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        self.lines += len(text.splitlines())
        for node in ast.walk(ast.parse(text)):
            self.nodes += 1
            place = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, _FUNCTIONS):
                self.functions.append((branches(node), f"{place} {node.name}"))
            for kind in kinds(node):
                self.counts[kind] += 1
                if kind in ("unrelated", "positional"):
                    self.packed.append(f"{place} {kind}")

    def include(self, other: Density) -> None:
        self.lines += other.lines
        self.nodes += other.nodes
        self.counts += other.counts
        self.functions += other.functions
        self.packed += other.packed

    def row(self) -> list[str]:
        """Return the cells of the table, as ``HEADINGS`` has them, without the name."""
        complex_functions = sum(number >= COMPLEX for number, _ in self.functions)
        return [
            f"{self.lines:,}",
            f"{self.nodes / max(self.lines, 1):.2f}",
            f"{self._per_thousand('unrelated'):.1f}",
            f"{self._per_thousand('conditional'):.1f}",
            f"{self._per_thousand('comprehension'):.1f}",
            f"{self._per_thousand('positional'):.1f}",
            str(complex_functions),
            str(self.counts["loop over one"]),
        ]

    def _per_thousand(self, kind: str) -> float:
        return 1000 * self.counts[kind] / max(self.lines, 1)


def branches(function: ast.AST) -> int:
    """Return the cyclomatic complexity of a function, without the functions inside it."""
    total = 1
    left = list(ast.iter_child_nodes(function))
    while left:
        node = left.pop()
        if isinstance(node, _FUNCTIONS):
            continue
        if isinstance(node, _BRANCHES):
            total += 1
        elif isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            total += 1 + len(node.ifs)
        left.extend(ast.iter_child_nodes(node))
    return total


def kinds(node: ast.AST) -> Iterator[str]:
    """Yield what is packed in a node."""
    if isinstance(node, ast.Assign) and _is_unrelated(node):
        yield "unrelated"
    elif isinstance(node, ast.IfExp):
        yield "conditional"
    elif isinstance(node, _COMPREHENSIONS):
        yield "comprehension"
    elif isinstance(node, ast.Call) and _values_by_position(node) >= POSITIONAL:
        yield "positional"
    if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension) and _names_one(node.target):
        yield "loop over one"


def _is_unrelated(node: ast.Assign) -> bool:
    """Are several values assigned at once, other than a swap?"""
    target = node.targets[0]
    if not isinstance(target, ast.Tuple) or not isinstance(node.value, ast.Tuple):
        return False
    given = {ast.dump(value).replace("Load", "Store") for value in node.value.elts}
    taken = {ast.dump(name) for name in target.elts}
    return not given & taken


def _values_by_position(node: ast.Call) -> int:
    return sum(not isinstance(value, ast.Starred) for value in node.args)


def _names_one(target: ast.expr) -> bool:
    return any(isinstance(name, ast.Name) and name.id == "one" for name in ast.walk(target))


def measure(place: Path) -> Density:
    """Count one module, or every module below a folder."""
    found = Density()
    for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
        found.count_module(path)
    return found


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with these rows."""
    lines = [HEADINGS, ["---"] * len(HEADINGS), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", default=PACKAGES, metavar="FOLDER")
    parser.add_argument("--worst", type=int, default=0, metavar="N")
    parser.add_argument("--packed", action="store_true")
    options = parser.parse_args()
    whole = Density()
    rows = []
    for name in options.folders:
        found = measure(ROOT / name)
        rows.append([name, *found.row()])
        whole.include(found)
    print(table([*rows, ["all", *whole.row()]]))
    for number, place in sorted(whole.functions, reverse=True)[: options.worst]:
        print(f"{number:>4}  {place}")
    if options.packed:
        print("\n".join(whole.packed))


if __name__ == "__main__":
    main()
