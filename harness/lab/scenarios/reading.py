"""Finds and reads scenario files: `extends`, `matrix`, errors with file, line, what was found and
what was meant."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sfusion_tools.errors import YamlError, near
from sfusion_tools.marked_yaml import Marked, Path_, YamlPlace, parse_marked, read_marked

from ...errors import ScenarioError
from .model import Scenario
from .problems import KEYS, problems_of

JOURNAL = "journal.ndjson"
"""The name of a recorded run's journal."""
JUDGED = "judge"
"""The folder of the bundled scenarios that ``sfusion judge`` plays, and ``sfusion run`` only by
name."""
_MAX_CELLS = 1000
"""In the matrix of a file; chosen: nobody waits for more runs than that."""
_MAX_VALUES = 1_000_000
"""In all cells of a file together; chosen: they fit into memory."""
_MAX_PARENTS = 20
"""Files in a row that each extend the next; chosen: far more than anybody can follow."""


def bundled_folder() -> Path:
    """Return the folder of the bundled scenarios, which are data of the package ``sfusion``."""
    return Path(str(files("sfusion"))) / "scenarios"


def is_bundled(file: Path) -> bool:
    """Is this one of the bundled files, or a link to one?"""
    return file.resolve().is_relative_to(bundled_folder().resolve())


def scenario_files(given: list[str]) -> list[Path]:
    """Return the files for paths of files, folders or names of bundled scenarios; for none, all
    bundled ones."""
    if not given:
        return [file for file in in_folder(bundled_folder()) if file.parent.name != JUDGED]
    found: list[Path] = []
    for text in given:
        path = Path(text)
        if path.is_dir():
            inside = in_folder(path)
            if not inside:
                raise ScenarioError([f"{path}: no scenario file (*.yaml) in this folder"])
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            found.append(_bundled(text))
    return list(dict.fromkeys(found))


def in_folder(folder: Path) -> list[Path]:
    """Return the scenario files below a folder.

    Files whose name begins with _ only serve `extends`; a file beside a journal is part of a
    recorded run.
    """
    found = [*folder.rglob("*.yaml"), *folder.rglob("*.yml")]
    wanted = filter(_is_played, found)
    return sorted(wanted, key=lambda path: (path.parent, path.stem))


def _is_played(path: Path) -> bool:
    return not path.name.startswith("_") and not path.with_name(JOURNAL).exists()


def _bundled(name: str) -> Path:
    """Return the file of a bundled scenario; refuse with the nearest name or file."""
    files = {path.stem: path for path in in_folder(bundled_folder())}
    if name in files:
        return files[name]
    path = Path(name)
    beside = [str(path.with_name(file.name)) for file in path.parent.glob("*.y*ml")]
    hint = near(name, beside if path.suffix in (".yaml", ".yml") else files)
    if not hint.startswith("did you mean"):
        hint = "see `sfusion list` for the bundled ones"
    raise ScenarioError([f"{name}: no such file, folder or bundled scenario; {hint}"])


def read_scenarios(path: Path | str) -> list[Scenario]:
    """Read a scenario file and return its cells, each a scenario without a matrix."""
    path = Path(path)
    try:
        return _cells(_extended(read_marked(path), path, ()))
    except YamlError as error:
        raise ScenarioError(error.problems) from None


def read_files(files: Iterable[Path]) -> tuple[dict[Path, list[Scenario]], list[str]]:
    """Read several files; return the cells of each valid one, and the problems of the others."""
    found: dict[Path, list[Scenario]] = {}
    problems: list[str] = []
    for file in files:
        try:
            found[file] = read_scenarios(file)
        except ScenarioError as error:
            problems += error.problems
    return found, problems


def parse_scenarios(
    text: str, *, file: str = "scenario", base: Path | None = None
) -> list[Scenario]:
    """Read scenarios from a text; ``base`` is the folder that `extends` is relative to."""
    try:
        return _cells(_extended(parse_marked(text, file), (base or Path()) / "scenario.yaml", ()))
    except YamlError as error:
        raise ScenarioError(error.problems) from None


def vary(scenario: Scenario, values: Mapping[str, Any], option: str = "--vary") -> Scenario:
    """Return the scenario with other values at dotted paths; a ScenarioError names the option that
    they are from.

    In a whole tool config, ``tools.KEY`` is a key of the first tool's config.
    """
    data = scenario.plain
    names = ", ".join(f"{key}={_label(value)}" for key, value in values.items())
    places: dict[Path_, YamlPlace] = {(): YamlPlace(f"{option} {names}", 0)}
    for key, value in values.items():
        where = YamlPlace(f"{option} {key}={_label(value)}", 0)
        path = _put(data, _key_in(data, key), copy.deepcopy(value), where)
        places[path] = where
    return _validated(Marked(data, places), scenario.cell)


def _key_in(data: dict[str, Any], key: str) -> str:
    """Return where a dotted key leads in this scenario."""
    first, _, rest = key.partition(".")
    has_tool_config = first == "tools" and isinstance(data.get("tools"), list)
    if has_tool_config and rest and not rest[0].isdecimal():
        return f"tools.0.config.{rest}"
    return key


def _extended(marked: Marked, path: Path, children: tuple[Path, ...]) -> Marked:
    """Merge a file into the one that it extends."""
    if not isinstance(marked.data, dict):
        found = "nothing" if marked.data is None else f"a {type(marked.data).__name__}"
        meant = "a scenario is a mapping that starts with `scenario: NAME`"
        raise ScenarioError([f"{marked.place(())}: {meant}, found {found}"])
    parent = marked.data.pop("extends", None)
    if parent is None:
        return marked
    place = marked.place(("extends",))
    if not isinstance(parent, str):
        raise ScenarioError([f"{place}: extends takes the path of one file, found {parent!r}"])
    target = path.parent / parent
    if not parent.endswith((".yaml", ".yml")):
        target = path.parent / f"{parent}.yaml"
    if not target.is_file():
        others: list[str] = []
        if target.parent.is_dir():
            others = sorted(file.stem for file in target.parent.glob("*.y*ml"))
        hint = near(Path(parent).stem, others)
        raise ScenarioError([f"{place}: extends {parent!r}, but {target} does not exist; {hint}"])
    if len(children) >= _MAX_PARENTS:
        raise ScenarioError([f"{place}: the {_MAX_PARENTS}th file in a row that extends another"])
    seen = (*children, path.resolve())
    if target.resolve() in seen:
        raise ScenarioError([f"{place}: extends {parent!r}, which extends this file again"])
    below = _extended(read_marked(target), target, seen)
    return _merged(below, marked)


def _merged(below: Marked, above: Marked) -> Marked:
    """Merge mappings key by key; replace everything else."""
    data = copy.deepcopy(below.data)
    replaced: set[Path_] = set()

    def put(into: dict[str, Any], values: dict[str, Any], path: Path_) -> None:
        for key, value in values.items():
            here = (*path, key)
            # A matrix replaces the parent's matrix as a whole.
            if isinstance(value, dict) and isinstance(into.get(key), dict) and here != ("matrix",):
                put(into[key], value, here)
            else:
                into[key] = copy.deepcopy(value)
                replaced.add(here)

    put(data, above.data, ())
    return Marked(data, _without(below.places, replaced) | above.places, above.text)


def _without(places: dict[Path_, YamlPlace], replaced: Collection[Path_]) -> dict[Path_, YamlPlace]:
    """Return the places that are not at or below a path that was replaced."""
    return {
        path: place
        for path, place in places.items()
        if not any(path[:length] in replaced for length in range(1, len(path) + 1))
    }


@dataclass(frozen=True, slots=True)
class _Choice:
    """A value of one axis of a matrix."""

    key: str
    label: str
    value: Any
    where: YamlPlace

    @property
    def shown(self) -> str:
        """Keys are shown by their last part: nodes=2 for cluster.nodes=2."""
        return f"{self.key.rpartition('.')[2]}={self.label}"


def _cells(marked: Marked) -> list[Scenario]:
    """Return one scenario for each combination of the values in the matrix."""
    matrix = marked.data.pop("matrix", None)
    if matrix is None:
        return [_validated(marked, "")]
    place = marked.place(("matrix",))
    if not isinstance(matrix, dict) or not matrix:
        meant = "matrix is a mapping of dotted keys to lists, as in {cluster.nodes: [1, 2]}"
        raise ScenarioError([f"{place}: {meant}"])
    axes = [_axis(key, values, marked) for key, values in matrix.items()]

    count = math.prod(map(len, axes))
    if count > _MAX_CELLS:
        raise ScenarioError(
            [f"{place}: the matrix has {count:,} cells; at most {_MAX_CELLS:,} are allowed"]
        )
    total = count * len(marked.places)
    if total > _MAX_VALUES:
        raise ScenarioError(
            [
                f"{place}: {count:,} cells of {len(marked.places):,} values each are {total:,}; "
                f"at most {_MAX_VALUES:,} are allowed"
            ]
        )
    return [_cell(marked, choices) for choices in itertools.product(*axes)]


def _axis(key: Any, values: Any, marked: Marked) -> list[_Choice]:
    """Return the values of one key of a matrix, with their labels."""
    where = marked.place(("matrix", key))
    if isinstance(values, dict) and values:
        named = list(values.items())
    elif isinstance(values, list) and values:
        named = [(_label(value), value) for value in values]
    else:
        raise ScenarioError(
            [
                f"{where}: matrix.{key} needs a list of values or a mapping of names to values, "
                f"found {values!r}"
            ]
        )
    labels = [label for label, _ in named]
    if len(set(labels)) != len(labels):
        raise ScenarioError([f"{where}: matrix.{key} has the same value twice"])
    return [_Choice(str(key), str(label), value, where) for label, value in named]


def _cell(marked: Marked, choices: tuple[_Choice, ...]) -> Scenario:
    data = copy.deepcopy(marked.data)
    put: dict[Path_, YamlPlace] = {}
    for choice in choices:
        path = _put(data, choice.key, choice.value, choice.where)
        put[path] = choice.where
    places = _without(marked.places, put) | put
    label = ",".join(choice.shown for choice in choices)
    return _validated(Marked(data, places, marked.text), label)


def _put(data: Any, key: str, value: Any, where: YamlPlace) -> Path_:
    """Put a value at a dotted key, and return its path. Mappings on the way are made."""
    *way, last = key.split(".")
    into = data
    for part in way:
        place = _place_in(into, part, key, where)
        into = into.setdefault(place, {}) if isinstance(into, dict) else into[place]
    into[_place_in(into, last, key, where)] = value
    return tuple(int(part) if part.isdecimal() else part for part in (*way, last))


def _place_in(into: Any, part: str, key: str, where: YamlPlace) -> str | int:
    """Return the place of a part of a dotted key: the key of a mapping, or the index of a list."""
    if isinstance(into, dict):
        return part
    if isinstance(into, list) and part.isdecimal() and int(part) < len(into):
        return int(part)
    found = f"a list of {len(into)}" if isinstance(into, list) else repr(into)
    raise ScenarioError([f"{where}: {key!r} does not exist: there is no {part!r} in {found}"])


def _label(value: Any) -> str:
    """Return how a value of a matrix is named: a+b for [a, b], key:value for a mapping."""
    if isinstance(value, dict):
        return "+".join(_label_of_key(key, inner) for key, inner in value.items())
    if isinstance(value, list):
        return "+".join(map(_label, value))
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _label_of_key(key: Any, value: Any) -> str:
    return str(key) if isinstance(value, bool) else f"{key}:{_label(value)}"


def _validated(marked: Marked, cell: str) -> Scenario:
    if "cell" in marked.data:
        raise ScenarioError(
            [f"{marked.place(('cell',))}: unknown key 'cell'; {near('cell', KEYS)}"]
        )
    try:
        return Scenario.from_data(marked.data, cell, marked.place)
    except ValidationError as error:
        raise ScenarioError(problems_of(error, marked)) from None
