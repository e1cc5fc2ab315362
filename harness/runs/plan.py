"""Which cells a command runs: files x matrix x worlds, filtered by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfusion.harness.errors import ScenarioError
from sfusion.harness.scenarios.model import Scenario, World
from sfusion.harness.scenarios.reading import read_scenarios
from sfusion.harness.scenarios.realising import only_faked


@dataclass(frozen=True, slots=True)
class Task:
    """One cell to run in one world."""

    scenario: Scenario
    world: World
    file: Path | None = None

    @property
    def name(self) -> str:
        """Scenario and cell."""
        return self.scenario.title

    @property
    def folder(self) -> str:
        """The name of its folder below --out."""
        cell = "".join(one if one.isalnum() or one in "=,.-_+" else "-" for one in self.scenario.cell)
        world = "" if self.world == "sim" else f"@{self.world}"
        return f"{self.scenario.scenario}{f'[{cell}]' if cell else ''}{world}"


def plan(
    files: Iterable[Path],
    *,
    world: World = "sim",
    keyword: str = "",
    seed: int | None = None,
    tools: list[dict[str, Any]] | None = None,
    real: bool = False,
) -> tuple[list[Task], Counter[str]]:
    """The tasks, and how many cells were left out for which reason. ``real``: for sandboxes that are not fakes."""
    changes: dict[str, Any] = {} if seed is None else {"seed": seed}
    tasks: list[Task] = []
    problems: list[str] = []
    skipped: Counter[str] = Counter()
    names: dict[str, Path] = {}
    for file in files:
        try:
            cells = read_scenarios(file)
        except ScenarioError as error:
            problems += error.problems
            continue
        name = cells[0].scenario
        if name in names:
            problems.append(f"{file}:1: the scenario {name!r} is also in {names[name]}; give one of them another name")
            continue
        names[name] = file
        for cell in cells:
            if keyword and not _selected(cell, keyword):
                continue
            if world not in cell.worlds:
                skipped[f"do not run in world {world}"] += 1
                continue
            if real and (why := only_faked(cell)) is not None:
                skipped[f"need the fake sandbox: {why}"] += 1
                continue
            if tools is not None:
                changes["tools"] = _fitted(tools, cell)
            tasks.append(Task(cell.changed(**changes) if changes else cell, world, file))
    if problems:
        raise ScenarioError(problems)
    return tasks, skipped


def _fitted(tools: list[dict[str, Any]], scenario: Scenario) -> list[dict[str, Any]]:
    """The tool config given, with the scenario's values for the keys that it has: limits and timeouts are the test."""
    said = scenario.own_config or {}
    return [
        {**entry, "config": {**config, **{key: value for key, value in said.items() if key in config}}}
        for entry in tools
        for config in [entry.get("config") or {}]
    ]


def _selected(scenario: Scenario, keyword: str) -> bool:
    """Words of the keyword in the title, joined as pytest's -k: `a or b`, `a and not b`, or plain `a`."""
    title = scenario.title
    return any(
        all((word[4:] not in title) if word.startswith("not ") else word in title for word in _words(alternative))
        for alternative in keyword.split(" or ")
    )


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(" and ")]
