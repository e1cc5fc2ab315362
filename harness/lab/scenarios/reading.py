"""Finds and reads scenario files: `extends`, `matrix`, errors with file, line, what was found and
what was meant."""

from __future__ import annotations

import copy
import itertools
import math
import typing
from collections.abc import Collection, Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sfusion_tools.errors import YamlError, near
from sfusion_tools.marked_yaml import Marked, Path_, YamlPlace, parse_marked, read_marked

from ...errors import ScenarioError
from .base import Misplaced, models_in
from .model import Scenario

JOURNAL = "journal.ndjson"
"""The name of a recorded run's journal."""


JUDGED = "judge"
"""The folder of the bundled scenarios that ``sfusion judge`` plays, and ``sfusion run`` only by
name."""


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
    for one in given:
        path = Path(one)
        if path.is_dir():
            inside = in_folder(path)
            if not inside:
                raise ScenarioError([f"{path}: no scenario file (*.yaml) in this folder"])
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            found.append(_bundled(one))
    return list(dict.fromkeys(found))


def in_folder(folder: Path) -> list[Path]:
    """Return the scenario files below a folder.

    Files whose name begins with _ only serve `extends`; a file beside a journal is part of a
    recorded run.
    """
    found = [path for pattern in ("*.yaml", "*.yml") for path in folder.rglob(pattern)]
    wanted = (
        path
        for path in found
        if not path.name.startswith("_") and not path.with_name(JOURNAL).exists()
    )
    return sorted(wanted, key=lambda path: (path.parent, path.stem))


def _bundled(name: str) -> Path:
    files = {path.stem: path for path in in_folder(bundled_folder())}
    if name in files:
        return files[name]
    hint = near(name, files)
    if not hint.startswith("did you mean"):
        hint = "see `sfusion list` for the bundled ones"
    raise ScenarioError([f"{name}: no such file, folder or bundled scenario; {hint}"])


_MAX_CELLS = 1000
_MAX_VALUES = 1_000_000
"""In all cells of a file together."""
_MAX_PARENTS = 20
_MOST_PROBLEMS = 20
_KNOWN = [*(name for name in Scenario.model_fields if name != "cell"), "extends", "matrix"]


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
        first, _, rest = key.partition(".")
        if (
            first == "tools"
            and isinstance(data.get("tools"), list)
            and rest
            and not rest[0].isdecimal()
        ):
            key = f"tools.0.config.{rest}"
        places[_put(data, key, copy.deepcopy(value), where)] = where
    return _validated(Marked(data, places), scenario.cell)


def _extended(marked: Marked, path: Path, children: tuple[Path, ...]) -> Marked:
    """Merge a file into the one that it extends."""
    if not isinstance(marked.data, dict):
        found = "nothing" if marked.data is None else f"a {type(marked.data).__name__}"
        raise ScenarioError(
            [
                (
                    f"{marked.place(())}: a scenario is a mapping that starts with `scenario: "
                    f"NAME`, found {found}"
                )
            ]
        )
    parent = marked.data.pop("extends", None)
    if parent is None:
        return marked
    place = marked.place(("extends",))
    if not isinstance(parent, str):
        raise ScenarioError([f"{place}: extends takes the path of one file, found {parent!r}"])
    target = path.parent / (parent if parent.endswith((".yaml", ".yml")) else f"{parent}.yaml")
    if not target.is_file():
        others = (
            sorted(one.stem for one in target.parent.glob("*.y*ml"))
            if target.parent.is_dir()
            else []
        )
        raise ScenarioError(
            [
                (
                    f"{place}: extends {parent!r}, but {target} does not exist; "
                    f"{near(Path(parent).stem, others)}"
                )
            ]
        )
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


def _cells(marked: Marked) -> list[Scenario]:
    matrix = marked.data.pop("matrix", None)
    if matrix is None:
        return [_validated(marked, "")]
    place = marked.place(("matrix",))
    if not isinstance(matrix, dict) or not matrix:
        raise ScenarioError(
            [
                (
                    f"{place}: matrix is a mapping of dotted keys to lists, as in "
                    f"{{cluster.nodes: [1, 2]}}"
                )
            ]
        )
    axes: list[list[tuple[str, str, Any, YamlPlace]]] = []
    for key, values in matrix.items():
        where = marked.place(("matrix", key))
        if isinstance(values, dict) and values:
            named = list(values.items())
        elif isinstance(values, list) and values:
            named = [(_label(value), value) for value in values]
        else:
            raise ScenarioError(
                [
                    (
                        f"{where}: matrix.{key} needs a list of values or a mapping of names "
                        f"to values, found {values!r}"
                    )
                ]
            )
        labels = [label for label, _ in named]
        if len(set(labels)) != len(labels):
            raise ScenarioError([f"{where}: matrix.{key} has the same value twice"])
        axes.append([(str(key), str(label), value, where) for label, value in named])
    count = math.prod(map(len, axes))
    if count > _MAX_CELLS:
        raise ScenarioError(
            [f"{place}: the matrix has {count:,} cells; at most {_MAX_CELLS:,} are allowed"]
        )
    if (values := count * len(marked.places)) > _MAX_VALUES:
        raise ScenarioError(
            [
                f"{place}: {count:,} cells of {len(marked.places):,} values each are {values:,}; "
                f"at most {_MAX_VALUES:,} are allowed"
            ]
        )
    return [_validated(*_cell(marked, choice)) for choice in itertools.product(*axes)]


def _cell(
    marked: Marked, choice: tuple[tuple[str, str, Any, YamlPlace], ...]
) -> tuple[Marked, str]:
    data = copy.deepcopy(marked.data)
    put: dict[Path_, YamlPlace] = {}
    for key, _, value, where in choice:
        put[_put(data, key, value, where)] = where
    places = _without(marked.places, put) | put
    # Keys are shown by their last part: nodes=2 for cluster.nodes=2.
    label = ",".join(f"{key.rpartition('.')[2]}={label}" for key, label, _, _ in choice)
    return Marked(data, places, marked.text), label


def _put(data: Any, key: str, value: Any, where: YamlPlace) -> Path_:
    """Put a value at a dotted key, and return its path."""
    owner: Any = [data]
    place: Any = 0
    parts = key.split(".")
    for part in parts:
        into = owner.setdefault(place, {}) if isinstance(owner, dict) else owner[place]
        if isinstance(into, list) and part.isdecimal() and int(part) < len(into):
            owner, place = into, int(part)
        elif isinstance(into, dict):
            owner, place = into, part
        else:
            found = f"a list of {len(into)}" if isinstance(into, list) else repr(into)
            raise ScenarioError(
                [f"{where}: {key!r} does not exist: there is no {part!r} in {found}"]
            )
    owner[place] = value
    return tuple(int(part) if part.isdecimal() else part for part in parts)


def _label(value: Any) -> str:
    if isinstance(value, dict):
        return "+".join(
            f"{key}:{_label(one)}" if not isinstance(one, bool) else str(key)
            for key, one in value.items()
        )
    if isinstance(value, list):
        return "+".join(_label(one) for one in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _validated(marked: Marked, cell: str) -> Scenario:
    if "cell" in marked.data:
        raise ScenarioError(
            [f"{marked.place(('cell',))}: unknown key 'cell'; {near('cell', _KNOWN)}"]
        )
    try:
        return Scenario.from_data(marked.data, cell, marked.place)
    except ValidationError as error:
        found = error.errors()
        problems = list(
            dict.fromkeys(_sentence(problem, marked) for problem in found[:_MOST_PROBLEMS])
        )
        if len(found) > _MOST_PROBLEMS:
            problems.append(f"{marked.place(())}: and {len(found) - _MOST_PROBLEMS} more problems")
        raise ScenarioError(problems) from None


def _sentence(problem: Any, marked: Marked) -> str:
    loc: Path_ = tuple(problem["loc"])
    path = _real_path(loc, marked.data)
    key = ".".join(str(part) for part in path)
    kind, found = problem["type"], problem.get("input")
    if kind == "extra_forbidden":
        place = marked.place(path)
        known = list(_fields_at(Scenario, path[:-1]))
        if len(path) == 1:
            known = _KNOWN
        return (
            f"{place}: unknown key {str(path[-1])!r}{_within(path)}; {near(str(path[-1]), known)}"
        )
    wrong = problem.get("ctx", {}).get("error")
    if isinstance(wrong, Misplaced):
        path = wrong.path
        key = ".".join(str(part) for part in path)
    place = marked.place(path)
    if kind == "missing":
        owner = _fields_at(Scenario, path[:-1])
        field = owner.get(str(path[-1]))
        meant = field.description if field is not None and field.description else "it is required"
        return f"{place}: {path[-1]!s} is missing{_within(path)}: {meant}"
    message = str(problem["msg"]).removeprefix("Value error, ")
    if kind == "value_error":
        return f"{place}: {key + ': ' if key else ''}{message}"
    shown = repr(found)
    return (
        f"{place}: {key}: {message[:1].lower()}{message[1:]}, found "
        f"{shown if len(shown) < 80 else shown[:77] + '...'}"
    )


def _within(path: Path_) -> str:
    return f" in {'.'.join(str(part) for part in path[:-1])}" if len(path) > 1 else ""


def _real_path(loc: Path_, data: Any) -> Path_:
    """Return the location without the names of alternatives that pydantic inserts."""
    path: list[str | int] = []
    for index, part in enumerate(loc):
        known = (
            range(len(data)) if isinstance(data, list) else data if isinstance(data, dict) else ()
        )
        if part in known:
            data = data[part]
        elif isinstance(data, dict) and isinstance(part, int) and part == 0:
            continue  # a single mapping in place of a list
        elif index == len(loc) - 1 and isinstance(part, str) and part.isidentifier():
            path.append(part)  # a missing key
            break
        else:
            continue
        path.append(part)
    return tuple(path)


def _fields_at(model: Any, path: Path_) -> dict[str, Any]:
    """Return the fields of the model at a path."""
    for part in path:
        if isinstance(part, int):
            continue
        if typing.get_origin(model) is dict:
            model = typing.get_args(model)[1]
            continue
        models = list(models_in(model))
        model = next(
            (one.model_fields[part].annotation for one in models if part in one.model_fields), None
        )
    found: dict[str, Any] = {}
    for one in models_in(model):
        found |= one.model_fields
    return found
