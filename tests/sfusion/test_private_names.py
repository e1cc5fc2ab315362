"""CONTRIBUTING.md lists every private name of a dependency, and the product does without those that
are gone."""

from __future__ import annotations

import ast
import asyncio
import builtins
import importlib
import inspect
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.lab.worlds.virtual_time import VirtualTimeLoop
from sfusion_tools.sandbox import Program, SandboxClient

ROOT = Path(__file__).parents[2]
HEADING = "## Private names of dependencies"
UNDOCUMENTED = re.compile(
    r"ray\.experimental|hypothesis\.internal|aiohttp\.(client_proto|http|connector)\b|c_make_\w+"
)
"""Modules without an underscore that their documentation does not mention either."""


def _files() -> Iterator[Path]:
    for folder in ("sfusion_tools", "fakes", "harness"):
        yield from sorted((ROOT / folder).rglob("*.py"))
    yield ROOT / "conftest.py"


def _is_private(name: str) -> bool:
    return (
        name.startswith("_") and not name.endswith("_") and name != "_exit"
    )  # that of `os` is documented


def _module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[0] == "sfusion_tools" else ("sfusion", *parts)).removesuffix(
        ".__init__"
    )


def _foreign_source(path: Path, name: str) -> str:
    """Return the source of the classes that a class of ours inherits and that are not ours."""
    found = getattr(importlib.import_module(_module_of(path)), name, None)
    bases = inspect.getmro(found) if isinstance(found, type) else ()
    foreign = [
        base
        for base in bases
        if base.__module__.partition(".")[0] not in ("sfusion", "sfusion_tools")
    ]
    texts = []
    for base in foreign:
        if base.__module__.partition(".")[0] not in (
            *sys.builtin_module_names,
            "typing",
            "abc",
            "enum",
            "pydantic",
        ):
            try:
                texts.append(inspect.getsource(base))
            except (OSError, TypeError):
                continue  # written in C
    return "\n".join(texts)


def _found() -> set[tuple[str, str]]:
    """Return file and name of each private name of a dependency, as far as the syntax tells."""
    nodes = {path: list(ast.walk(ast.parse(path.read_text("utf-8")))) for path in _files()}
    ours = {name for of_file in nodes.values() for node in of_file for name in _defined(node)}
    found: set[tuple[str, str]] = set()
    for path, of_file in nodes.items():
        file = path.relative_to(ROOT).as_posix()
        for node in of_file:
            for name in _used(node):
                foreign = not name.startswith("sfusion") and name not in ours
                if foreign and (
                    UNDOCUMENTED.search(name) or any(map(_is_private, name.split(".")))
                ):
                    found.add((file, name))
            if isinstance(node, ast.ClassDef) and node.bases and path.name != "conftest.py":
                mine = {
                    name for part in ast.walk(node) for name in _of_self(part) if _is_private(name)
                }
                source = _foreign_source(path, node.name) if mine else ""
                found |= {
                    (file, name) for name in mine if re.search(rf"(self\.|def ){name}\b", source)
                }
    return found


def _of_self(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.Attribute(value=ast.Name(id="self"), attr=name):
            yield name
        case ast.Call(
            func=ast.Name(id="getattr"),
            args=[ast.Name(id="self"), ast.Constant(value=str(name)), *_],
        ):
            yield name


def _defined(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Name(id=name, ctx=ast.Store()):
            yield name
        case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
            yield name
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name


def _used(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Attribute(attr=name):
            yield name
        case ast.Call(
            func=ast.Name(id="getattr" | "hasattr" | "setattr"),
            args=[_, ast.Constant(value=str(name)), *_],
        ):
            yield name
        case ast.ImportFrom(module=str(module), level=0, names=names):
            yield module
            yield from (f"{module}.{name.name}" for name in names if not module.startswith("__"))
        case ast.Import(names=names):
            yield from (name.name for name in names)
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]) if re.fullmatch(
            r"[\w.]*\b_\w+\.?", text
        ):
            yield text.rstrip(".")


def _table() -> list[list[str]]:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition(HEADING)[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in text.splitlines()
        if line[:1] == "|"
    ]
    return rows[2:]


def test_every_private_name_of_a_dependency_has_a_line_in_contributing():
    listed = [(row[1], one) for row in _table() for one in re.findall(r"`([^`]+)`", row[0])]
    unlisted = [
        f"{file}: {name}"
        for file, name in sorted(_found())
        if not any(file in where and f".{name}." in f".{one}." for where, one in listed)
    ]
    assert unlisted == []


def test_every_line_of_the_table_is_complete_and_true():
    rows = _table()
    assert rows
    for row in rows:
        assert len(row) == 6, row
        assert all(row), row
        texts = [
            (ROOT / file).read_text("utf-8") for file in re.findall(r"`([\w/.]+\.py)`", row[1])
        ]
        for name in re.findall(r"`([^`]+)`", row[0]):
            assert any(name.split(".")[-1] in text for text in texts), (
                f"{name} is not used any more"
            )
        for test in re.findall(r"`([\w/.]+\.py)`", row[5]):
            assert (ROOT / test).is_file(), test


class _Without:
    """Hides attributes of an object from getattr."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any, *names: str) -> None:
        def hidden(of: object, name: str, *default: object) -> object:
            if name in names:
                if default:
                    return default[0]
                raise AttributeError(name)
            return builtins.getattr(of, name, *default)

        monkeypatch.setattr(module, "getattr", hidden, raising=False)


def test_virtual_time_passes_without_the_queues_of_asyncio(monkeypatch):
    from sfusion.harness.lab.worlds import virtual_time

    _Without(monkeypatch, virtual_time, "_ready", "_scheduled")

    async def main() -> tuple[list[int], float, int | None]:
        loop, order = asyncio.get_running_loop(), []
        for number in (3, 1, 2):
            loop.call_later(number, order.append, number)
        await asyncio.sleep(3600)
        async with FakeSandbox() as sandbox:
            result = await SandboxClient(sandbox.url).run(Program("print(1)"))
        return order, loop.time(), result.attempts[-1].status

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        order, now, status = runner.run(main())
    assert (order, status) == ([1, 2, 3], 200)
    assert now >= 3600


async def test_the_fake_answers_without_the_private_names_of_aiohttps_server(monkeypatch):
    from sfusion.fakes.wire import connection

    _Without(monkeypatch, connection, "_messages", "_request_factory")
    async with FakeSandbox(executor="scripted") as sandbox:
        client = SandboxClient(sandbox.url)
        results = [await client.run(Program("print(1)")) for _ in range(2)]
    assert [result.attempts[-1].status for result in results] == [200, 200]


def test_a_limiter_works_without_rays_key_value_store(monkeypatch, caplog):
    internal_kv = pytest.importorskip("ray.experimental.internal_kv")
    from sfusion_tools.limiter import record

    for action in ("get", "put", "del"):
        monkeypatch.delattr(internal_kv, f"_internal_kv_{action}")
    record._warn_once.cache_clear()
    store = record.RecordStore("x")
    with caplog.at_level(logging.WARNING):
        store.write(record.LimiterRecord("actor", {"lease": 1.0}, {}, 1.0))
        store.mark_removed("actor")
        assert (store.read(), store.read_callers(), store.seconds_since_removal("actor")) == (
            None,
            [],
            None,
        )
    assert caplog.text.count("no key-value store") == 1


def test_a_ray_without_its_private_modules_is_used_as_it_is(monkeypatch):
    pytest.importorskip("ray")
    from sfusion.harness.lab.worlds import ray_cluster

    for module in ("node", "services", "worker", "state"):
        monkeypatch.setitem(sys.modules, f"ray._private.{module}", None)
    with ray_cluster._without_dashboard(), ray_cluster.slow_start_allowed():
        ray_cluster._quiet().close()
    assert ray_cluster._private("state") is None
