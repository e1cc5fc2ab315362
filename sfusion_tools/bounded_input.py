"""Files and texts that a stranger may have written: size and depth are bounded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NoReturn

from sfusion_tools.errors import InputError

MAX_LINE = 50_000_000
MAX_TOTAL = 1_000_000_000
"""Bytes of a line and of a file that are read. Chosen: far above any log or dump that was seen, and
what a machine can hold."""

MAX_DEPTH = 100
"""Levels of JSON. Chosen: no real text has so many. Python's own limit depends on the stack of the
reader, and the writer may have less."""

_PIECE = 2**16
_OUTLINE = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
"""Strings, closed or not, and brackets outside of them."""


def read_bounded(path: Path, most: int) -> bytes:
    """Return the content of a file of at most ``most`` bytes; raise InputError otherwise."""
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except (OSError, ValueError) as error:  # a NUL in the name is a ValueError
        raise InputError(
            f"{path}:1: cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None
    if len(content) > most:
        raise InputError(f"{path}:1: larger than {most:,} bytes, the most that is read")
    return content


def decoded(content: bytes, path: Path) -> str:
    """Return UTF-8 as text; raise InputError with the line of the first other byte."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InputError(f"{path}:{line}: not UTF-8 text; save the file as UTF-8") from None


def read_lines(
    path: Path, *, line: int = MAX_LINE, total: int = MAX_TOTAL
) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their numbers.

    Raise InputError beyond the bounds, both in bytes.
    """
    try:
        with path.open("rb") as file:
            yield from bounded_lines(file, str(path), line=line, total=total)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}:1: cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None


def bounded_lines(
    file: IO[bytes],
    name: str,
    *,
    line: int = MAX_LINE,
    total: int | None = None,
    on_long: Callable[[InputError], None] | None = None,
) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of an open file with their numbers; raise InputError beyond the bounds.

    Lines that are too long are passed over if ``on_long`` is there to be called for them. Only line
    feeds end a line: JSON may contain U+2028 and similar characters unescaped.
    """
    number = read = 0
    while content := file.readline(line + 1):
        number += 1
        read += len(content)
        if len(content) > line:
            error = InputError(
                f"{name}:{number}: a line of more than {line:,} bytes, the most that is read"
            )
            if on_long is None:
                raise error
            while content and not content.endswith(b"\n"):
                content = file.readline(_PIECE)
            on_long(error)
            continue
        if total is not None and read > total:
            raise InputError(f"{name}:{number}: larger than {total:,} bytes, the most that is read")
        yield number, content


def parse_json(text: str | bytes, where: str, *, constants: bool = False) -> Any:
    """Read JSON; raise InputError if it is not JSON or nested too deep.

    The error begins with ``where``. NaN and Infinity, which only Python calls JSON, are refused
    unless ``constants``.
    """
    too_deep = InputError(f"{where}: nested more than {MAX_DEPTH} levels deep")
    try:
        text = text.decode("utf-8") if isinstance(text, bytes) else text
        value = json.loads(text) if constants else _DECODE(text)
    except RecursionError:
        raise too_deep from None
    except ValueError as error:
        raise InputError(f"{where}: not JSON: {error}") from None
    # A text with few brackets cannot be deep, which spares nearly all of them the walk.
    if _brackets(text) > MAX_DEPTH and levels(value) > MAX_DEPTH:
        raise too_deep
    return value


def _brackets(text: str) -> int:
    """Return how many brackets are opened, also in strings."""
    return text.count("[") + text.count("{")


def levels(value: Any) -> int:
    """Return how deep a JSON value is nested: 0 for a scalar, 1 for a flat object."""
    depth = 0
    layer = [value]
    while True:
        inner: list[Any] = []
        is_deeper = False
        for item in layer:
            if isinstance(item, dict | list):
                is_deeper = True
                inner += item.values() if isinstance(item, dict) else item
        if not is_deeper:
            return depth
        depth += 1
        layer = inner


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


_DECODE = json.JSONDecoder(parse_constant=_refuse).decode


def nesting(text: str) -> int:
    """Return how many brackets are open at once at most, in JSON or nearly JSON.

    Of a text with at most ``MAX_DEPTH`` brackets it returns 0, without looking closer.
    """
    if _brackets(text) <= MAX_DEPTH:
        return 0
    depth = deepest = 0
    for match in _OUTLINE.finditer(text):
        if match[0] in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif match[0] in "]}":
            depth -= 1
    return deepest
