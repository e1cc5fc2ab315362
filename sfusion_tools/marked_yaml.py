"""YAML with the file and line of every value, so that an error can say where it is.

The texts may be hostile: their size, their depth and what their aliases expand to are bounded
(``YamlLimits``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from sfusion_tools.bounded_input import decoded, read_bounded
from sfusion_tools.errors import InputError, YamlError

Path_ = tuple[str | int, ...]

_MOST_PROBLEMS = 20
"""Chosen: as many as somebody reads."""

_LONGEST_NUMBER = 100
_LONGEST_KEY = 1000
"""Characters of a number and of a key. Chosen: more than any meaningful one has; Python needs
quadratic time to read longer numbers."""

_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


@dataclass(frozen=True, slots=True)
class YamlLimits:
    """How much YAML is read. Chosen: far more than any tool config or scenario has."""

    bytes: int = 1_000_000
    depth: int = 40
    nodes: int = 100_000
    """Values and keys after aliases are expanded: what a reader of the data may have to walk."""


LIMITS = YamlLimits()


@dataclass(frozen=True, slots=True)
class YamlPlace:
    """A file and a line in it; line 0 for what has no lines, such as an option of a command."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


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


def read_marked(path: Path, limits: YamlLimits = LIMITS) -> Marked:
    """Read a YAML file; raise YamlError with file and line."""
    try:
        text = decoded(read_bounded(path, limits.bytes), path)
    except InputError as error:
        raise YamlError([str(error)]) from None
    return parse_marked(text, str(path), limits)


def parse_marked(text: str, file: str, limits: YamlLimits = LIMITS) -> Marked:
    """Read one YAML document; ``file`` is its name in errors."""
    if len(text) > limits.bytes:
        raise YamlError([f"{file}:1: larger than {limits.bytes:,} bytes, the most that is read"])
    # libyaml has other rules for tabs, byte-order marks and the line breaks of Unicode
    if text.isascii() and "\t" not in text:
        with suppress(yaml.YAMLError):  # libyaml words its problems differently
            return _marked(_FastLoader(text, limits), text, file)
    try:
        return _marked(_Loader(text, limits), text, file)
    except yaml.YAMLError as error:
        raise YamlError([_yaml_problem(error, file)]) from None


def _marked(loader: Any, text: str, file: str) -> Marked:
    marked = Marked(None, {(): YamlPlace(file, 1)}, text)
    node = loader.get_single_node()
    problems = list(itertools.islice(_walk(node, (), marked.places, file), _MOST_PROBLEMS))
    if problems:
        raise YamlError(problems)
    marked.data = None if node is None else loader.construct_document(node)
    return marked


class _TooMuch(yaml.MarkedYAMLError):
    """The text is YAML, but beyond the limits."""


class _Limited(Composer, SafeConstructor, Resolver):
    """Stops at the first node beyond the limits.

    Nothing has walked what the aliases expand to by then.
    """

    parser: ClassVar[Any]
    peek_event: Callable[[], Any]

    def __init__(self, text: str, limits: YamlLimits) -> None:
        self.parser.__init__(self, text)
        Composer.__init__(self)
        SafeConstructor.__init__(self)
        Resolver.__init__(self)
        self._limits = limits
        self._depth = 0
        self._composed = 0
        self._extents: dict[int, tuple[int, int]] = {}
        """How many nodes and levels each complete node expands to, by its id.

        The composed tree keeps the nodes alive.
        """

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        mark = event.start_mark
        self._depth += 1
        if self._depth > self._limits.depth + 1:
            raise self._too_deep(mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        _name_keys(node)
        if id(node) not in self._extents:
            if isinstance(event, yaml.AliasEvent):
                raise _TooMuch(
                    problem=f"*{event.anchor} stands inside its own anchor", problem_mark=mark
                )
            within = [self._extents[id(child)] for child in _children(node)]
            size = 1 + sum(size for size, _ in within)
            height = 1 + max((height for _, height in within), default=0)
            self._extents[id(node)] = size, height
        size, height = self._extents[id(node)]
        self._composed += 1
        if max(size, self._composed) > self._limits.nodes:
            what = (
                f"more than {self._limits.nodes:,} keys and values (aliases are counted as what "
                "they stand for)"
            )
            raise _TooMuch(problem=what, problem_mark=mark)
        if self._depth + height > self._limits.depth + 1:
            raise self._too_deep(mark)
        return node

    def _too_deep(self, mark: Any) -> _TooMuch:
        return _TooMuch(
            problem=f"nested more than {self._limits.depth} levels deep; this is not supported",
            problem_mark=mark,
        )

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        if node.tag in _NUMBERS and len(node.value) > _LONGEST_NUMBER:
            what = (
                f"a number of more than {_LONGEST_NUMBER} characters; put it in quotes if it is a "
                "text"
            )
            raise _TooMuch(problem=what, problem_mark=node.start_mark)
        try:
            return super().construct_object(node, deep)
        except yaml.YAMLError:
            raise
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
            # A date that does not exist, or a tag that does not fit its value.
            what = f"a value cannot be read: {error}; put it in quotes"
            raise _TooMuch(problem=what, problem_mark=node.start_mark) from None


class _Loader(_Limited, yaml.SafeLoader):
    parser = yaml.SafeLoader


_Parser: Any = (
    __import__("yaml._yaml", fromlist=["CParser"]).CParser if yaml.__with_libyaml__ else None
)
"""The parser of libyaml, where PyYAML was built with it."""


class _LibyamlLoader(_Limited, _Parser or object):  # type: ignore[misc] # a class that is chosen when it runs
    """Parses in C; nodes are composed as in the other loader, so the limits are the same."""

    parser = _Parser


_FastLoader: Any = _LibyamlLoader if _Parser is not None else _Loader


def _name_keys(node: Any) -> None:
    """Let ``on`` be a key: YAML 1.1 takes it for true, which is no key of ours."""
    if isinstance(node, yaml.MappingNode):
        for key, _value in node.value:
            if key.tag == "tag:yaml.org,2002:bool" and key.value == "on":
                key.tag = "tag:yaml.org,2002:str"


def _children(node: Any) -> list[Any]:
    if isinstance(node, yaml.MappingNode):
        children: list[Any] = []
        for key, value in node.value:
            children += (key, value)
        return children
    if isinstance(node, yaml.SequenceNode):
        return list(node.value)
    return []


def _walk(node: Any, path: Path_, places: dict[Path_, YamlPlace], file: str) -> Iterator[str]:
    """Note the place of every value and key below a node; yield what is wrong with them."""
    if node is None:
        return
    line = node.start_mark.line + 1
    places.setdefault(path, YamlPlace(file, line))
    if isinstance(node, yaml.MappingNode):
        yield from _walk_mapping(node, path, places, file)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _walk(value, (*path, index), places, file)


def _walk_mapping(
    node: yaml.MappingNode, path: Path_, places: dict[Path_, YamlPlace], file: str
) -> Iterator[str]:
    seen: dict[str, int] = {}
    for key, value in node.value:
        name = getattr(key, "value", None)
        here = key.start_mark.line + 1
        if not isinstance(name, str):
            yield f"{file}:{here}: a key must be a plain word, found a {key.id}"
            continue
        if len(name) > _LONGEST_KEY:
            yield f"{file}:{here}: a key of more than {_LONGEST_KEY:,} characters"
            continue
        if name in seen and name != "<<":
            yield (
                f"{file}:{here}: duplicate key {name!r}, first given in line {seen[name]}; "
                "remove one"
            )
        seen[name] = here
        places[(*path, name)] = YamlPlace(file, here)
        yield from _walk(value, (*path, name), places, file)


def _yaml_problem(error: yaml.YAMLError, file: str) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = str(getattr(error, "problem", None) or error).strip()
    line = mark.line + 1 if mark is not None else 1
    if isinstance(error, _TooMuch):
        return f"{file}:{line}: {problem}"
    if problem == "but found another document":
        return (
            f"{file}:{line}: a second YAML document begins here; put each document into its own "
            "file"
        )
    if "'\\t'" in problem:
        return f"{file}:{line}: a tab where YAML expects spaces; indent with spaces"
    if "could not determine a constructor" in problem:
        return f"{file}:{line}: {problem}; tags such as !!python are not loaded, write plain values"
    hint = "close every bracket and quote, and put texts with ': ' or '#' in quotes"
    return f"{file}:{line}: not YAML: {problem}; {hint}"
