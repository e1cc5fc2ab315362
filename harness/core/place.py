"""Where a function or class stands: its file and line, as a CI system shows findings on them."""

from __future__ import annotations

import functools
import inspect
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Place:
    """A line of a file in the repository of the user."""

    file: str
    """Relative to the root of the repository, with forward slashes."""
    line: int


def place_of(target: Any) -> Place | None:
    """Return where a function, a class or the class of an object begins.

    None if it has no source, or if that is outside the repository: an installed package, for
    example.
    """
    while isinstance(target, functools.partial):
        target = target.func
    target = inspect.unwrap(target)
    if not (inspect.isclass(target) or inspect.isroutine(target)):
        target = type(target)
    try:
        file = inspect.getsourcefile(target)
        line = inspect.getsourcelines(target)[1]
    except (OSError, TypeError):
        return None
    root = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd()).resolve()
    path = Path(file or "").resolve()
    if not path.is_relative_to(root) or "site-packages" in path.parts:
        return None
    return Place(path.relative_to(root).as_posix(), line)
