"""What is wrong with a scenario, in words: file and line, what was found, and what was meant."""

from __future__ import annotations

import re
import typing
from typing import Any

from pydantic import ValidationError

from sfusion_tools.errors import near
from sfusion_tools.marked_yaml import Marked, Path_

from ....fakes.described import described_fields
from .base import Misplaced, models_in
from .model import Scenario

KEYS = [*(name for name in Scenario.model_fields if name != "cell"), "extends", "matrix"]
"""The keys of a scenario file."""
_MOST_PROBLEMS = 20
"""Of a file that are shown; chosen: they fit on a screen."""
_LONGEST_SHOWN = 80
"""Characters of a wrong value in an error; chosen: it fits on a line."""


def problems_of(error: ValidationError, marked: Marked) -> list[str]:
    """Return the problems that pydantic found, each once."""
    found = error.errors()
    sentences = [_sentence(problem, marked) for problem in found[:_MOST_PROBLEMS]]
    problems = list(dict.fromkeys(sentences))
    if len(found) > _MOST_PROBLEMS:
        problems.append(f"{marked.place(())}: and {len(found) - _MOST_PROBLEMS} more problems")
    return problems


def _sentence(problem: Any, marked: Marked) -> str:
    """Return a problem that pydantic found with its file and line, and what was meant."""
    path = _real_path(tuple(problem["loc"]), marked.data)
    wrong = problem.get("ctx", {}).get("error")
    if isinstance(wrong, Misplaced):
        path = wrong.path
    place = marked.place(path)
    message = str(problem["msg"]).removeprefix("Value error, ")
    match problem["type"]:
        case "extra_forbidden":
            return f"{place}: {_unknown_key(path)}"
        case "missing":
            return f"{place}: {_missing_key(path)}"
        case "value_error":
            return f"{place}: {_dotted(path)}: {message}" if path else f"{place}: {message}"
    if problem["type"] == "model_type":
        message = "expected a mapping of keys"  # pydantic names its class
    shown = repr(problem.get("input"))
    if len(shown) >= _LONGEST_SHOWN:
        shown = shown[: _LONGEST_SHOWN - 3] + "..."
    found = f"{message[:1].lower()}{message[1:]}, found {shown}"
    return f"{place}: {_dotted(path)}: {found}{_suggestion(problem)}"


def _suggestion(problem: Any) -> str:
    """Return the word that was meant in place of one that is not among those expected."""
    given = problem.get("input")
    if problem["type"] not in ("literal_error", "enum") or not isinstance(given, str):
        return ""
    hint = near(given, re.findall(r"'([^']*)'", problem["ctx"]["expected"]))
    return f"; {hint}" if hint.startswith("did you mean") else ""


def _unknown_key(path: Path_) -> str:
    key = str(path[-1])
    known = KEYS if len(path) == 1 else list(_fields_at(Scenario, path[:-1]))
    return f"unknown key {key!r}{_within(path)}; {near(key, known)}"


def _missing_key(path: Path_) -> str:
    key = str(path[-1])
    field = _fields_at(Scenario, path[:-1]).get(key)
    meant = "it is required"
    if field is not None and field.description:
        meant = field.description
    return f"{key} is missing{_within(path)}: {meant}"


def _dotted(path: Path_) -> str:
    return ".".join(str(part) for part in path)


def _within(path: Path_) -> str:
    return f" in {_dotted(path[:-1])}" if len(path) > 1 else ""


def _real_path(loc: Path_, data: Any) -> Path_:
    """Return the location as it is in the file.

    Pydantic inserts the names of alternatives, and the place 0 where a single mapping stands for a
    list. What is not in the data is left out, unless it ends the location: then it is the name of a
    missing key.
    """
    path: list[str | int] = []
    for number, part in enumerate(loc, start=1):
        if _has(data, part):
            data = data[part]
            path.append(part)
        elif number == len(loc) and isinstance(part, str) and part.isidentifier():
            path.append(part)
    return tuple(path)


def _has(data: Any, part: str | int) -> bool:
    """Does a list or a mapping have this place?"""
    if isinstance(data, list):
        return part in range(len(data))
    return isinstance(data, dict) and part in data


def _fields_at(annotation: Any, path: Path_) -> dict[str, Any]:
    """Return the fields of the models at a path below an annotation."""
    for part in path:
        if isinstance(part, int):
            continue
        if typing.get_origin(annotation) is dict:
            annotation = typing.get_args(annotation)[1]
        else:
            annotation = _annotation_of(part, annotation)
    fields: dict[str, Any] = {}
    for model in models_in(annotation):
        fields |= described_fields(model)
    return fields


def _annotation_of(name: str, annotation: Any) -> Any:
    """Return the annotation of a field in the first model that has it; None if none has."""
    for model in models_in(annotation):
        if name in model.model_fields:
            return model.model_fields[name].annotation
    return None
