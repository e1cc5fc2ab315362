"""YAML with the file and line of every value, so that an error can say where it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from sfusion_tools.errors import YamlError

Path_ = tuple[str | int, ...]
_MAX_DEPTH = 40


@dataclass(frozen=True, slots=True)
class YamlPlace:
    """A file and a line in it."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(slots=True)
class Marked:
    """Plain data, and the place of each value and key by its path."""

    data: Any
    places: dict[Path_, YamlPlace] = field(default_factory=dict)
    text: str = ""

    def place(self, path: Path_) -> YamlPlace:
        """The place of a value, or of the nearest value around it."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places[path]


def read_marked(path: Path) -> Marked:
    """Read a YAML file; raise YamlError with file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise YamlError([f"{path}:1: cannot be read: {error.strerror or error}"]) from None
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise YamlError([f"{path}:{line}: not UTF-8 text; save the file as UTF-8"]) from None
    return parse_marked(text, str(path))


def parse_marked(text: str, file: str) -> Marked:
    """Read one YAML document; ``file`` is its name in errors."""
    try:
        documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise YamlError([_yaml_problem(error, file)]) from None
    if len(documents) > 1:
        line = documents[1].start_mark.line + 1
        raise YamlError([f"{file}:{line}: a second YAML document begins here; put each document into its own file"])
    node = documents[0] if documents else None
    marked = Marked(None, {(): YamlPlace(file, 1)}, text)
    problems = list(_walk(node, (), marked.places, file))
    if problems:
        raise YamlError(problems)
    try:
        marked.data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise YamlError([_yaml_problem(error, file)]) from None
    except ValueError as error:  # a date that does not exist, for example
        raise YamlError([f"{file}:1: a value cannot be read: {error}; put it in quotes"]) from None
    return marked


def _walk(node: Any, path: Path_, places: dict[Path_, YamlPlace], file: str) -> Iterator[str]:
    if node is None:
        return
    line = node.start_mark.line + 1
    places.setdefault(path, YamlPlace(file, line))
    if len(path) > _MAX_DEPTH:
        yield f"{file}:{line}: nested more than {_MAX_DEPTH} levels deep; this is not supported"
    elif isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            name = getattr(key, "value", None)
            here = key.start_mark.line + 1
            if not isinstance(name, str):
                yield f"{file}:{here}: a key must be a plain word, found a {key.id}"
                continue
            if name in seen and name != "<<":
                yield f"{file}:{here}: duplicate key {name!r}, first given in line {seen[name]}; remove one"
            seen[name] = here
            places[(*path, name)] = YamlPlace(file, here)
            yield from _walk(value, (*path, name), places, file)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _walk(value, (*path, index), places, file)


def _yaml_problem(error: yaml.YAMLError, file: str) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = str(getattr(error, "problem", None) or error).strip()
    line = mark.line + 1 if mark is not None else 1
    if "'\\t'" in problem:
        return f"{file}:{line}: a tab where YAML expects spaces; indent with spaces"
    if "could not determine a constructor" in problem:
        return f"{file}:{line}: {problem}; tags such as !!python are not loaded, write plain values"
    hint = "close every bracket and quote, and put texts with ': ' or '#' in quotes"
    return f"{file}:{line}: not YAML: {problem}; {hint}"
