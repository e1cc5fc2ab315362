"""Nothing of ours unpickles what another program could write.

A pickle runs code. A program in the sandbox may be able to write to a file or a socket of its user,
so what comes from there is read as JSON, text or numbers.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests import ROOT

PACKAGES = ("sfusion_tools", "fakes", "harness", "benchmarks")
READERS = {"load", "loads", "open", "Unpickler", "Unmarshaller", "Shelf", "DbfilenameShelf"}
MODULES = {"pickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
ANYWHERE = {"read_pickle", "allow_pickle"}
"""Methods and arguments that unpickle whatever the module, as in pandas and numpy."""
IMPORTERS = {"import_module", "__import__"}

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
                if _unpickles(alias.name):
                    modules.add(alias.asname or alias.name)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if _unpickles(node.module or "") and alias.name in READERS:
                    names.add(alias.asname or alias.name)
                elif _unpickles(alias.name):
                    modules.add(alias.asname or alias.name)
    return [
        node.lineno
        for node in ast.walk(tree)
        if _is_reader(node, modules)
        or (isinstance(node, ast.Name) and node.id in names)
        or (isinstance(node, ast.keyword) and node.arg in ANYWHERE)
        or (isinstance(node, ast.Call) and _imports_by_name(node))
    ]


def _unpickles(module: str) -> bool:
    """Is it a module that unpickles, also as a part of another, such as ``ray.cloudpickle``?"""
    return bool(set(module.split(".")) & MODULES)


def _imports_by_name(call: ast.Call) -> bool:
    """Is a module that unpickles imported by its name as text?"""
    named = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
    imports = ast.unparse(call.func).rpartition(".")[2] in IMPORTERS
    return imports and any(_unpickles(str(name)) for name in named)


def _is_reader(node: ast.AST, modules: set[str]) -> bool:
    if isinstance(node, ast.Attribute) and node.attr in ANYWHERE:
        return True
    if not isinstance(node, ast.Attribute) or node.attr not in READERS:
        return False
    written = ast.unparse(node.value)
    return written in modules or _unpickles(written)


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
        "import ray\nray.cloudpickle.loads(b'')",
        "import ray.cloudpickle\nray.cloudpickle.loads(b'')",
        "from ray import cloudpickle\ncloudpickle.loads(b'')",
        "from ray.cloudpickle import loads\nloads(b'')",
        "import shelve\nshelve.open('file')",
        "from shelve import open\nopen('file')",
        "import dill\ndill.load(file)",
        "import dill as d\nd.loads(b'')",
        "from dill import Unpickler\nUnpickler(file)",
        "import importlib\nimportlib.import_module('pickle')",
        "__import__('ray.cloudpickle')",
        "import pandas\npandas.read_pickle('file')",
        "import numpy\nnumpy.load('file', allow_pickle=True)",
    ],
)
def test_every_way_to_unpickle_is_found(source: str) -> None:
    assert len(unpickling(source)) == 1


def test_pickling_and_json_are_not_unpickling() -> None:
    assert unpickling("import pickle, json\npickle.dumps(1)\njson.loads('1')") == []
