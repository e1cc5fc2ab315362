"""YAML with a comment above each key that has one."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

Path = tuple[str | int, ...]
_WIDTH = 116


def commented_yaml(data: Mapping[str, Any], notes: Mapping[Path, str], head: str = "") -> str:
    """Write a mapping; what has a note, or contains something that has one, gets lines of its own."""
    lines = [*_comment(head, ""), *_mapping(data, notes, (), "")]
    return "\n".join(lines) + "\n"


def _mapping(data: Mapping[str, Any], notes: Mapping[Path, str], path: Path, indent: str) -> Iterator[str]:
    for key, value in data.items():
        here = (*path, key)
        yield from _comment(notes.get(here, ""), indent)
        if isinstance(value, str) and len(value) > 80:
            yield f"{indent}{key}: >-"
            yield from textwrap.wrap(value, _WIDTH, initial_indent=f"{indent}  ", subsequent_indent=f"{indent}  ")
        elif isinstance(value, dict) and _has_notes(notes, here):
            yield f"{indent}{key}:"
            yield from _mapping(value, notes, here, indent + "  ")
        elif isinstance(value, list) and (_has_notes(notes, here) or any(isinstance(one, dict) for one in value)):
            yield f"{indent}{key}:"
            for place, one in enumerate(value):
                yield from _comment(notes.get((*here, place), ""), indent + "  ")
                yield f"{indent}  - {_flow(one)}"
        else:
            yield f"{indent}{key}: {_flow(value)}"


def _has_notes(notes: Mapping[Path, str], path: Path) -> bool:
    return any(len(one) > len(path) and one[: len(path)] == path for one in notes)


def _flow(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10**9, sort_keys=False, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


def _comment(text: str, indent: str) -> list[str]:
    clean = "".join(one if one.isprintable() else " " for one in text)
    return textwrap.wrap(clean, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
