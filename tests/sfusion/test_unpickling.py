"""Nothing of ours unpickles what another program could write.

A pickle runs code. A program in the sandbox may be able to write to a file or a socket of its user,
so what comes from there is read as JSON, text or numbers.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests import ROOT

PACKAGES = ("sfusion_tools", "fakes", "harness")
READERS = {"load", "loads", "Unpickler", "Unmarshaller"}
MODULES = {"pickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}

ALLOWED = {
    # Arguments and results of an actor's methods. Ray itself unpickles what arrives there.
    "sfusion_tools/limiter/messages.py": 1,
    # Pipes between a process and the children that it has forked or started: no other process has
    # an end of them. The third is the argument of a Ray task.
    "harness/lab/spreading.py": 3,
    # The standard input of a process that its parent has started, a pipe of these two.
    "harness/lab/worlds/ray_worker.py": 1,
}


def unpickling(source: str) -> list[int]:
    """Return the lines that unpickle, however the module or the function is called there."""
    tree = ast.parse(source)
    modules: set[str] = set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in MODULES:
                    modules.add(alias.asname or alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            for alias in node.names:
                if alias.name in READERS:
                    names.add(alias.asname or alias.name)
    return [
        node.lineno
        for node in ast.walk(tree)
        if _is_reader(node, modules) or (isinstance(node, ast.Name) and node.id in names)
    ]


def _is_reader(node: ast.AST, modules: set[str]) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr in READERS
        and isinstance(node.value, ast.Name)
        and node.value.id in modules
    )


def test_only_pipes_of_our_own_and_what_ray_carries_are_unpickled() -> None:
    found = {}
    for package in PACKAGES:
        for path in sorted(Path(ROOT, package).rglob("*.py")):
            lines = unpickling(path.read_text(encoding="utf-8"))
            if lines:
                found[str(path.relative_to(ROOT))] = len(lines)
    assert found == ALLOWED


@pytest.mark.parametrize(
    "source",
    [
        "import pickle\npickle.loads(b'')",
        "import pickle as p\np.load(file)",
        "from pickle import loads as read\nread(b'')",
        "from pickle import Unpickler\nUnpickler(file).load()",
        "import marshal\nmarshal.loads(b'')",
        "def f():\n    import cloudpickle\n    return cloudpickle.loads",
    ],
)
def test_every_way_to_unpickle_is_found(source: str) -> None:
    assert len(unpickling(source)) == 1


def test_pickling_and_json_are_not_unpickling() -> None:
    assert unpickling("import pickle, json\npickle.dumps(1)\njson.loads('1')") == []
