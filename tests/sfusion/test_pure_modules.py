"""Pure modules can be imported where the libraries of their shells are not installed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.sfusion.graph import import_graph

SHELLS = ("aiohttp", "ray", "textual", "docker", "faker", "hypothesis")
PLAIN = (
    "sfusion_tools.advantages",
    "sfusion_tools.event_lines",
    "sfusion_tools.formats",
    "sfusion_tools.limiter",
    "sfusion_tools.outcome",
    "sfusion_tools.record",
    "sfusion.harness.lab.facts",
    "sfusion.harness.core.journal",
    "sfusion.harness.core.verdict",
    "sfusion.harness.studies.learn",
)
"""Need nothing but the standard library and YAML."""
PURE = (
    *PLAIN,
    "sfusion.fakes.faults",
    "sfusion.fakes.lifecycle",
    "sfusion.harness.core.figures",
    "sfusion.harness.lab.promises",
    "sfusion.harness.lab.runs",
    "sfusion.harness.lab.scenarios",
    "sfusion.harness.lab.single_calls",
    "sfusion.harness.reports",
    "sfusion.harness.search",
    "sfusion.harness.studies",
)
"""Beside that, pydantic, and what pages and terminals are rendered with."""
DECLARED_SHELLS = (
    "sfusion.harness.lab.runs.clients",
    "sfusion.harness.lab.runs.episodes",
    "sfusion_tools.limiter.ray_actor",
    "sfusion_tools.limiter.record",  # the limiter's record in the cluster
    "sfusion.harness.search.chaos",  # plays on a Ray cluster
    "sfusion.harness.studies.learn.check",  # plays what was learned
    "sfusion.harness.studies.learn.command",  # reads and writes
    "sfusion.harness.studies.learn.draft",  # writes the fields of scenarios as these declare
)

SHELL = "sfusion_tools.sandbox.public_transport"

IMPORTING = """
import importlib, json, sys

hidden, names = json.loads(sys.argv[1])

class Hiding:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"{name} is hidden", name=name)

sys.meta_path.insert(0, Hiding())
failed = {}
for name in names:
    try:
        importlib.import_module(name)
    except ImportError as error:
        failed[name] = str(error)
print(json.dumps(failed))
"""


def modules(packages: tuple[str, ...]) -> list[str]:
    """All modules of the packages but commands and other declared shells."""
    return [
        name
        for name in import_graph()
        if any(_inside(name, package) for package in packages)
        and not any(_inside(name, shell) for shell in DECLARED_SHELLS)
        and not name.rpartition(".")[2].startswith(("_", "command"))
    ]


def failing(names: list[str], hidden: tuple[str, ...]) -> dict[str, str]:
    arguments = [sys.executable, "-c", IMPORTING, json.dumps([hidden, names])]
    found: dict[str, str] = json.loads(
        subprocess.run(arguments, check=True, capture_output=True, text=True).stdout
    )
    return found


@pytest.mark.parametrize(
    ("packages", "hidden"),
    [(PURE, SHELLS), (PLAIN, (*SHELLS, "pydantic", "pydantic_core", "jinja2", "rich"))],
    ids=["pure", "plain"],
)
def test_pure_modules_need_no_library_of_a_shell(
    packages: tuple[str, ...], hidden: tuple[str, ...]
) -> None:
    names = modules(packages)
    assert all(any(_inside(name, package) for name in names) for package in packages)
    assert failing(names, hidden) == {}


def test_a_shell_is_found_out() -> None:
    assert failing([SHELL], SHELLS) == {SHELL: "aiohttp is hidden"}


def _inside(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")
