"""The tasks of a command: ``read_tasks``, then ``select_tasks``, ``adapt_tasks`` and
``admit_tasks``."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sfusion_tools.tool_registry import load_class

from ...commandline.keyword import read_keyword
from ...errors import BadOption, ScenarioError, Untrusted
from ..scenarios.episodes import Face
from ..scenarios.model import Scenario, World
from ..scenarios.reading import is_bundled, read_files
from ..scenarios.tools import HIDDEN, is_own
from .faces import episode_client, with_face

_CALLS_OF_A_SAMPLE = 2.0
_CALLS_OF_AN_EPISODE = 5.0
"""How much longer these take than a call. Measured with the bundled scenarios, roughly."""
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
    def effort(self) -> float:
        """Return about how many calls it has, by which the longest are begun first."""
        scenario = self.scenario
        training = scenario.training
        if training is not None:
            return _CALLS_OF_A_SAMPLE * training.steps * training.prompts * training.group
        if scenario.episodes is not None:
            return _CALLS_OF_AN_EPISODE * scenario.episodes.count
        if scenario.rollouts is not None:
            return scenario.rollouts.count * max(1, len(scenario.rollouts.turns))
        load = scenario.load
        if load is None:
            return 0.0
        return sum(part.times for part in load.each) or load.calls

    @property
    def folder(self) -> str:
        """Return the name of its folder below --out; no two cells have the same."""
        name = self.scenario.scenario
        if self.scenario.cell:
            cell = "".join(map(_in_file_name, self.scenario.cell))
            name += f"[{cell}]"
        if self.world != "sim":
            name += f"@{self.world}"
        return _shortened(name)


def _in_file_name(character: str) -> str:
    """Return a character as any file system takes it."""
    if character.isalnum() or character in "=,.-_+":
        return character
    return f"%{ord(character):02X}"


def _shortened(name: str) -> str:
    """Return the name of a file; one that is too long ends with a digest."""
    if len(name.encode()) <= _LONGEST_NAME:
        return name
    digest = "~" + hashlib.blake2b(name.encode(), digest_size=8).hexdigest()
    return name.encode()[: _LONGEST_NAME - len(digest)].decode(errors="ignore") + digest


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


def read_tools(
    given: Path | None, *, env: str | None = None, attribute: str | None = None
) -> tuple[list[dict[str, Any]] | None, str]:
    """Return the tools that --tools names, None without it, and why virtual time cannot play
    them. ``env`` and ``attribute`` name where a target reads the address."""
    if given is None:
        if env or attribute:
            raise BadOption(
                "--env and --attribute say where a target finds the address; name it with --tools"
            )
        return None, ""
    from ..shapes.as_tool import tools_of

    return tools_of(str(given), env=env, attribute=attribute)


_FEATURES = ("requests_per_second", "adaptive_rate_limit", "retry_may_have_run")
"""Keys of our tool that scenarios rely on, and that a tool without them cannot make up for."""


def select_tasks(
    tasks: Iterable[Task],
    *,
    keyword: str = "",
    real: bool = False,
    tools: list[dict[str, Any]] | None = None,
    face: Face | None = None,
) -> tuple[list[Task], Counter[str]]:
    """Return the tasks that match the keyword and can run, and how many cannot for which reason.

    With ``real`` the sandboxes are not fakes; ``tools`` are to be used instead of those of the
    scenarios, and ``face`` instead of the service of episodes.
    """
    matches = read_keyword(keyword)
    lacking = _lacking_features(tools)
    client = episode_client(tools)
    of_episodes = None if tools is None else client is not None
    spoken = "" if client is None or face is not None else client.face
    selected: list[Task] = []
    skipped: Counter[str] = Counter()
    for task in tasks:
        if not matches(task.name):
            continue
        why = _why_not(task, lacking, real=real, of_episodes=of_episodes)
        if why is None and spoken not in ("", task.scenario.sandbox.face):
            why = (
                f"the client speaks to {spoken}; with --face {spoken} it gets that service instead"
            )
        if why is None:
            selected.append(task)
        else:
            skipped[why] += 1
    return selected, skipped


def _lacking_features(tools: list[dict[str, Any]] | None) -> list[str]:
    """Return the features that the given tools do not have."""
    if tools is None or is_own(tools[0]):
        return []
    config = tools[0].get("config") or {}
    return [key for key in _FEATURES if key not in config]


def _why_not(task: Task, lacking: list[str], *, real: bool, of_episodes: bool | None) -> str | None:
    """Say why a task cannot run; None if it can.

    ``of_episodes``: do the given tools play episodes? None without given tools.
    """
    scenario = task.scenario
    why = scenario.not_for(task.world)
    if why is not None:
        return why
    if of_episodes is not None and of_episodes != (scenario.episodes is not None):
        if of_episodes:
            return "the target plays episodes"
        return "only for a target that plays episodes: a function of one `task`"
    if real and scenario.needs_fake is not None:
        return f"only for the fake sandbox: {scenario.needs_fake}"
    own_config = scenario.own_config or {}
    for key in lacking:
        if key in own_config:
            return f"the tool has no key {key}"
    return None


def adapt_tasks(
    tasks: Iterable[Task],
    *,
    seed: int | None = None,
    tools: list[dict[str, Any]] | None = None,
    schedule: dict[str, Any] | None = None,
    face: Face | None = None,
) -> list[Task]:
    """Replace the seed, the tools, the schedule and the service of the scenarios, where given."""
    common: dict[str, Any] = {}
    if seed is not None:
        common["seed"] = seed
    if schedule is not None:
        common["schedule"] = schedule
    adapted: list[Task] = []
    for task in tasks:
        changes = dict(common)
        if tools is not None:
            changes["tools"] = merged_tools(tools, task.scenario)
            task = replace(task, tools_given=True)
        if changes:
            task = replace(task, scenario=task.scenario.changed(**changes))
        if face is not None:
            task = replace(task, scenario=with_face(task.scenario, face))
        adapted.append(task)
    return adapted


def merged_tools(tools: list[dict[str, Any]], scenario: Scenario) -> list[dict[str, Any]]:
    """Put the scenario's values (limits and timeouts are what it tests) into the given tools.

    Our own class takes all of them, another class those that its config has.
    """
    if scenario.episodes is not None:
        return tools
    if scenario.has_single_calls:
        from .clients import client_tools

        return client_tools(tools[0], scenario)
    merged = []
    for entry in tools:
        config = entry.get("config") or {}
        merged.append({**entry, "config": {**config, **_stated_for(entry, config, scenario)}})
    return merged


def _stated_for(
    entry: dict[str, Any], config: dict[str, Any], scenario: Scenario
) -> dict[str, Any]:
    """Return the scenario's values that a given tool takes."""
    stated = scenario.tools[0] if isinstance(scenario.tools, list) else None
    if stated is not None and stated.get("class_name") == entry.get("class_name"):
        values = stated.get("config") or {}
        return {
            key: value
            for key, value in values.items()
            if key in config and HIDDEN not in str(value)
        }
    own_config = scenario.own_config or {}
    if is_own(entry):
        return own_config
    return {key: value for key, value in own_config.items() if key in config}


def check_trusted(tasks: Iterable[Task]) -> None:
    """Raise Untrusted if a task would run the code or the classes that a file names which the
    user does not trust."""
    problems: list[str] = []
    for task in tasks:
        if not task.trusted:
            problems += _untrusted(task)
    if problems:
        raise Untrusted(list(dict.fromkeys(problems)))


def _untrusted(task: Task) -> Iterator[str]:
    """Say what a task would run that its file names."""
    for path, what, place in task.scenario.runs():
        if path[0] == "tools" and task.tools_given:
            continue
        key = ".".join(map(str, path))
        yield (
            f"{place or task.name}: {key}: this would {what}; if you trust the file, add --trust"
        )


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
    naming = [task for task in tasks if isinstance(task.scenario.tools, list)]
    # Only these: any module in the folder of a stranger's file could stand in for an optional
    # package of ours.
    files = [task.file for task in naming if task.file is not None]
    find_modules_beside(files if tools is None else [tools])

    places: dict[str, str] = {}
    for task in naming:
        assert isinstance(task.scenario.tools, list)
        for number, entry in enumerate(task.scenario.tools):
            if not is_own(entry):
                places.setdefault(str(entry.get("class_name")), f"tools[{number}]")
    for class_name, place in places.items():
        load_class(f"{place} ({class_name})", class_name)
