"""The tasks of a command: ``read_tasks``, then ``select_tasks``, ``adapt_tasks`` and
``admit_tasks``."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sfusion_tools.tool_registry import load_class

from ...commandline.keyword import read_keyword
from ...errors import ScenarioError, Untrusted
from ..scenarios.model import Scenario, World
from ..scenarios.reading import is_bundled, read_files
from ..scenarios.tools import HIDDEN, is_own

_LONGEST_NAME = 255
"""Of a file, in bytes, on common file systems."""


@dataclass(frozen=True, slots=True)
class Task:
    """One cell to run in one world."""

    scenario: Scenario
    world: World
    file: Path | None = None
    trusted: bool = False
    """May it run the code and the classes that its file names? See ``check_trusted``."""
    tools_given: bool = False
    """Its tools were named by the user, not by its file."""

    @property
    def name(self) -> str:
        """Return scenario and cell."""
        return self.scenario.title

    @property
    def folder(self) -> str:
        """Return the name of its folder below --out; no two cells have the same."""
        cell = "".join(
            one if one.isalnum() or one in "=,.-_+" else f"%{ord(one):02X}"
            for one in self.scenario.cell
        )
        world = "" if self.world == "sim" else f"@{self.world}"
        name = f"{self.scenario.scenario}{f'[{cell}]' if cell else ''}{world}"
        if len(name.encode()) <= _LONGEST_NAME:
            return name
        digest = hashlib.blake2b(name.encode(), digest_size=8).hexdigest()
        return name.encode()[: _LONGEST_NAME - 17].decode(errors="ignore") + "~" + digest


def read_tasks(files: Iterable[Path], world: World, *, trust: bool = False) -> list[Task]:
    """Read every cell of every file. All problems of all files are raised as one ScenarioError.

    Bundled files are trusted, the others with ``trust``.
    """
    found, problems = read_files(files)
    tasks: list[Task] = []
    names: dict[str, Path] = {}
    for file, cells in found.items():
        name = cells[0].scenario
        if name in names:
            problems.append(
                f"{file}:1: the scenario {name!r} is also in {names[name]}; give one of "
                "them another name"
            )
            continue
        names[name] = file
        tasks += [Task(cell, world, file, trusted=trust or is_bundled(file)) for cell in cells]
    if problems:
        raise ScenarioError(problems)
    return tasks


def read_tools(given: Path | None) -> tuple[list[dict[str, Any]] | None, str]:
    """Return the tools that --tools names, None without it, and why virtual time cannot play
    them."""
    if given is None:
        return None, ""
    from ..shapes.as_tool import tools_of

    return tools_of(str(given))


_FEATURES = ("requests_per_second", "adaptive_rate_limit", "retry_may_have_run")
"""Keys of our tool that scenarios rely on, and that a tool without them cannot make up for."""


def select_tasks(
    tasks: Iterable[Task],
    *,
    keyword: str = "",
    real: bool = False,
    tools: list[dict[str, Any]] | None = None,
) -> tuple[list[Task], Counter[str]]:
    """Return the tasks that match the keyword and can run, and how many cannot for which reason.

    With ``real`` the sandboxes are not fakes; ``tools`` are to be used instead of those of the
    scenarios.
    """
    matches = read_keyword(keyword)
    lacking: list[str] = []
    if tools is not None and not is_own(tools[0]):
        lacking = [key for key in _FEATURES if key not in (tools[0].get("config") or {})]
    selected: list[Task] = []
    skipped: Counter[str] = Counter()
    for task in tasks:
        if not matches(task.name):
            continue
        if (why := task.scenario.not_for(task.world)) is not None:
            skipped[why] += 1
        elif real and (why := task.scenario.needs_fake) is not None:
            skipped[f"only for the fake sandbox: {why}"] += 1
        elif wanted := [key for key in lacking if key in (task.scenario.own_config or {})]:
            skipped[f"the tool has no key {wanted[0]}"] += 1
        else:
            selected.append(task)
    return selected, skipped


def adapt_tasks(
    tasks: Iterable[Task],
    *,
    seed: int | None = None,
    tools: list[dict[str, Any]] | None = None,
    schedule: dict[str, Any] | None = None,
) -> list[Task]:
    """Replace the seed, the tools and the schedule of the scenarios, where given."""
    wanted = {"seed": seed, "schedule": schedule}
    adapted: list[Task] = []
    for task in tasks:
        changes: dict[str, Any] = {key: value for key, value in wanted.items() if value is not None}
        if tools is not None:
            changes["tools"] = merged_tools(tools, task.scenario)
        given = task.tools_given or tools is not None
        adapted.append(
            replace(task, scenario=task.scenario.changed(**changes), tools_given=given)
            if changes
            else task
        )
    return adapted


def merged_tools(tools: list[dict[str, Any]], scenario: Scenario) -> list[dict[str, Any]]:
    """Put the scenario's values (limits and timeouts are what it tests) into the given tools.

    Our own class takes all of them, another class those that its config has.
    """
    if scenario.has_single_calls:
        from .clients import client_tools

        return client_tools(tools[0], scenario)
    merged = []
    for entry in tools:
        config, own = entry.get("config") or {}, scenario.own_config or {}
        taken = {key: value for key, value in own.items() if key in config or is_own(entry)}
        if isinstance(scenario.tools, list) and scenario.tools[0].get("class_name") == entry.get(
            "class_name"
        ):
            stated = scenario.tools[0].get("config") or {}
            taken = {
                key: value
                for key, value in stated.items()
                if key in config and HIDDEN not in str(value)
            }
        merged.append({**entry, "config": {**config, **taken}})
    return merged


def check_trusted(tasks: Iterable[Task]) -> None:
    """Raise Untrusted if a task would run the code or the classes that a file names which the
    user does not trust."""
    problems: dict[str, None] = {}
    for task in tasks:
        if task.trusted:
            continue
        for path, what, place in task.scenario.runs():
            if path[0] == "tools" and task.tools_given:
                continue
            key = ".".join(map(str, path))
            found = place or task.name
            problems[f"{found}: {key}: this would {what}; if you trust the file, add --trust"] = (
                None
            )
    if problems:
        raise Untrusted(list(problems))


def find_modules_beside(files: Iterable[Path]) -> None:
    """Let modules in the folders of these files, which must be trusted, be imported; new
    processes inherit that."""
    for folder in dict.fromkeys(str(file.resolve().parent) for file in files):
        if folder not in sys.path:
            sys.path.append(folder)


def admit_tasks(tasks: Sequence[Task], tools: Path | None = None) -> None:
    """Raise Untrusted if one is not to be trusted, ConfigError if a tool class that one names
    cannot be imported.

    ``tools`` is the file that the user named, beside which modules are found, instead of those of
    the tasks.
    """
    check_trusted(tasks)
    # Only these: any module in the folder of a stranger's file could stand in for an optional
    # package of ours.
    naming = [
        (task.file, task.scenario.tools) for task in tasks if isinstance(task.scenario.tools, list)
    ]
    find_modules_beside(
        [file for file, _ in naming if file is not None] if tools is None else [tools]
    )
    named: dict[str, str] = {}
    for _, entries in naming:
        for number, entry in enumerate(entries):
            if not is_own(entry):
                named.setdefault(str(entry.get("class_name")), f"tools[{number}]")
    for name, place in named.items():
        load_class(f"{place} ({name})", name)
