"""Render tool calls as models write them, and parse them back, whole or as they stream.

    form = get_format("hermes")
    text = form.render([{"name": "code_interpreter", "arguments": {"code": "print(1)"}}], content="Let me see.")
    form.parse(text).calls[0].arguments          # {'code': 'print(1)'}

A broken text is data, not an exception: the good calls are returned, and each refused call is a ``Problem``.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil

from sfusion_tools.errors import FormatError, RenderError, UnknownFormatError, near

from . import families
from .format import Format
from .lookalikes import MARKS
from .model import CallDelta, ContentDelta, Delta, Parsed, ParsedCall, Problem, ProblemDelta
from .streamparser import StreamParser
from .toolbox import Toolbox

__all__ = [
    "CallDelta",
    "ContentDelta",
    "Delta",
    "Format",
    "FormatError",
    "Parsed",
    "ParsedCall",
    "Problem",
    "ProblemDelta",
    "RenderError",
    "StreamParser",
    "Toolbox",
    "UnknownFormatError",
    "format_names",
    "get_format",
]

_FORMATS: list[Format] = []
_BY_NAME: dict[str, Format] = {}
_FIRST = ("hermes", "qwen3_coder", "llama3", "mistral", "deepseek", "glm", "kimi", "pythonic", "harmony")
"""Messages list the formats, and marks are searched, in this order; other modules follow by name."""


def format_names() -> tuple[str, ...]:
    """Return the names of all formats, without aliases."""
    return tuple(form.name for form in _FORMATS)


def get_format(name: str) -> Format:
    """Return the format called ``name``; raises UnknownFormatError, proposing a near match, if there is none."""
    form = _BY_NAME.get(name) or _BY_NAME.get(name.lower().replace("-", "_"))
    if form is None:
        raise UnknownFormatError(f"There is no tool-call format {name!r}: {near(name, _BY_NAME)}")
    return form


def _discover() -> None:
    names = [module.name for module in pkgutil.iter_modules(families.__path__)]
    for name in sorted(names, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name)):
        module = importlib.import_module(f"{families.__name__}.{name}")
        for found in vars(module).values():
            if not inspect.isclass(found) or inspect.isabstract(found) or found.__module__ != module.__name__:
                continue
            if issubclass(found, Format):
                form = found()
                _FORMATS.append(form)
                _BY_NAME.update(dict.fromkeys((form.name, *form.aliases), form))
                for mark in form.marks:
                    MARKS.setdefault(mark, []).append(form.name)


_discover()
