"""Imports point one way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sfusion.graph import Graph, cycles, import_graph

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


COMMANDS = "commands"
"""Every module called ``command``, and those in folders called ``commands``."""
FLOORS = (
    ("errors",),
    ("atomic_files", "terminal"),
    ("commandline",),
    ("core",),
    ("reports", "real"),
    ("lab",),
    ("learning", "rollouts", "search", "serving", "studies", "trial"),
    (COMMANDS, "cli", "pytest_items"),
    ("pytest_plugin",),
)
"""The rooms of harness/, from the lowest floor to the highest, as CONTRIBUTING.md draws them."""


def test_a_room_of_the_harness_imports_only_rooms_on_lower_floors() -> None:
    """Deferred imports count too. A command stands above what it runs, wherever its file is."""
    assert _upward(import_graph()) == []


def test_every_room_of_the_harness_has_a_floor() -> None:
    rooms = {_room(module) for module in import_graph() if _inside(module, "sfusion.harness")}
    assert rooms - {""} == {room for rooms in FLOORS for room in rooms}


@pytest.mark.parametrize(
    ("module", "other", "allowed"),
    [
        ("lab.worlds.play", "core.journal", True),
        ("lab.commands.run", "reports.files", True),
        ("studies.sweep.command", "learning.trained", True),
        ("lab.worlds.play", "learning.trained", False),
        ("studies.sweep.grid", "learning.trained", False),
        ("studies.sweep.grid", "studies.sweep.command", False),
        ("core.journal", "lab.runs.tasks", False),
        ("reports.run_report", "lab.runs.runner", False),
    ],
)
def test_an_import_of_a_higher_floor_is_found(module: str, other: str, allowed: bool) -> None:
    graph = {f"sfusion.harness.{module}": {f"sfusion.harness.{other}"}}
    assert (_upward(graph) == []) is allowed


def _upward(graph: Graph) -> list[str]:
    """Return the imports inside harness/ that do not lead to a lower floor or stay in one room."""
    floors = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    return [
        f"{module} imports {other}"
        for module, others in graph.items()
        for other in sorted(others)
        if (room := _room(module))
        and (below := _room(other))
        and room != below
        and floors[room] <= floors[below]
    ]


def _room(module: str) -> str:
    """Return the room of harness/ that a module is in; an empty text for other modules."""
    parts = module.split(".")
    if parts[:2] != ["sfusion", "harness"] or len(parts) < 3:
        return ""
    is_command = parts[-1] == "command" or "commands" in parts
    return COMMANDS if is_command else parts[2]


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
