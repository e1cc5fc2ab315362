"""What came back from a client, whatever its type, as text and named fields."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from ..client import EXIT_FIELDS, Returned
from ..facts.canary import tokens_in

_REWARDS = ("reward", "score")


def returned_from(value: Any) -> Returned:
    """Read a result: a string is the text; of anything else every field, in order, with strings
    as they are."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if value is None or isinstance(value, str):
        return Returned(value or "")
    value = _plain(value)
    if _is_number(value):
        return Returned(reward=float(value))
    if isinstance(value, tuple) and len(value) == 3 and isinstance(value[2], Mapping):
        return _of_tool(*value)
    if isinstance(value, tuple) and len(value) == 2 and type(_plain(value[0])) in (int, float):
        # A reward with its details.
        return Returned(text=_written(value[1]), fields=_fields(value[1]), reward=float(value[0]))
    return _of_structure(value)


def _of_structure(value: Any) -> Returned:
    """Read a result with named fields, such as a dataclass or a mapping."""
    fields = _fields(value)
    return Returned(_text_of(value, fields), fields, _reward_of(fields))


def _text_of(value: Any, fields: Mapping[str, Any]) -> str:
    """Return what a caller reads: the field ``text`` if it says all, else every field."""
    text = fields.get("text")
    if not isinstance(text, str):
        return _written(value)
    # Output that the text has already is there for the trainer; only the text is read.
    others = {name: leaf for name, leaf in fields.items() if name != "text"}
    others = {name: leaf for name, leaf in others.items() if not _repeats(leaf, text)}
    if any(isinstance(leaf, str | bool) for leaf in others.values()):
        # Not the text alone tells the caller how a call ended.
        return _written({"text": text, **others})
    return text


def _reward_of(fields: Mapping[str, Any]) -> float | None:
    for name in _REWARDS:
        if _is_number(fields.get(name)):
            return float(fields[name])
    return None


def _repeats(leaf: Any, text: str) -> bool:
    return isinstance(leaf, str) and (not leaf or bool(set(tokens_in(leaf)) & set(tokens_in(text))))


def _of_tool(response: Any, reward: Any, metrics: Mapping[str, Any]) -> Returned:
    text = response if isinstance(response, str) else getattr(response, "text", None)
    if text is None and isinstance(response, Mapping):
        text = response.get("text")
    # The very mapping: whether it changes later is part of the trial.
    return Returned(text or "", metrics, float(reward) if _is_number(reward) else None)


def raised(error: BaseException) -> Returned:
    """Return an exception, with the output and the exit code that its attributes carry."""
    carried: dict[str, Any] = {}
    for name, value in vars(error).items():
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        is_output = isinstance(value, str) and bool(tokens_in(value))
        if is_output or (name in EXIT_FIELDS and isinstance(value, int)):
            carried[name] = value
    return Returned(raised=f"{type(error).__name__}: {error}".rstrip(": "), fields=carried)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _plain(value: Any) -> Any:
    """Return a number of numpy, or the only one of a tensor, as Python's; anything else as it
    is."""
    if type(value) not in (bool, int, float) and getattr(value, "shape", None) in ((), (1,)):
        value = value.item()
    return value


def _parts(value: Any) -> Mapping[str, Any] | None:
    """Return the parts of a structured value by name; None if it has none."""
    if isinstance(value, Enum):
        return None
    if isinstance(value, Mapping):
        return {str(name): part for name, part in value.items()}
    if isinstance(value, tuple) and type(value) is not tuple:  # a named one
        return dict(zip(type(value).__match_args__, value, strict=False))  # type: ignore[attr-defined]
    if isinstance(value, list | tuple):
        return {str(number): part for number, part in enumerate(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "__dict__") and not isinstance(value, type | BaseException):
        return {name: part for name, part in vars(value).items() if not name.startswith("_")}
    return None


def _leaves(
    value: Any, path: tuple[str, ...] = (), depth: int = 0
) -> Iterator[tuple[tuple[str, ...], Any]]:
    value = _plain(value)
    parts = _parts(value) if depth < 6 else None
    if parts is None:
        if isinstance(value, Enum):  # a number of it means nothing to a reader
            value = value.value if isinstance(value.value, str) else value.name
        yield path, value
        return
    for name, part in parts.items():
        yield from _leaves(part, (*path, name), depth + 1)


def _fields(value: Any) -> dict[str, Any]:
    """Return all leaves by their last name where that is clear, else by their path; the compiler's
    have their path.

    The ``status`` of a server's answer is left out: its parts have their own.
    """
    leaves = [(path, leaf) for path, leaf in _leaves(value) if path]
    names = Counter(path[-1] for path, _ in leaves if not _of_compiler(path))
    if any(len(path) > 1 or path[0] in ("run_result", "compile_result") for path, _ in leaves):
        names["status"] += 1
        leaves = [(path, leaf) for path, leaf in leaves if path != ("status",)]
    clear = {path for path, _ in leaves if names[path[-1]] == 1 and not _of_compiler(path)}
    return {path[-1] if path in clear else ".".join(path): leaf for path, leaf in leaves}


def _of_compiler(path: tuple[str, ...]) -> bool:
    return any(part.startswith("compile") for part in path[:-1])


def _written(value: Any) -> str:
    """Return every leaf on lines of its own. Durations are left out: they differ from call to
    call."""
    lines = []
    for path, leaf in _leaves(value):
        counted = _is_number(leaf) and not isinstance(leaf, bool)  # ``timed_out`` is no duration
        if isinstance(leaf, float) or (counted and "time" in path[-1]):
            continue
        name = ".".join(path)
        lines.append(f"{name}:\n{leaf}" if isinstance(leaf, str) and leaf else f"{name}: {leaf}")
    return "\n".join(lines)
