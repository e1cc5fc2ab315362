"""Render tool calls as models write them, and parse them back, whole or as they stream.

    form = get_format("hermes") text = form.render([{"name": "code_interpreter", "arguments":
    {"code": "print(1)"}}], content="Let me see.") form.parse(text).calls[0].arguments          #
    {'code': 'print(1)'}

A broken text is data, not an exception: the good calls are returned, and each refused call is a
``Problem``.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

from sfusion_tools.errors import FormatError, RenderError, UnknownFormatError, near

from . import families
from .bundled import DECLARED
from .declared import read_formats as _read_formats
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
    "format_for",
    "format_names",
    "get_format",
]

_FILE = re.compile(r"(?P<file>.+\.ya?ml)(?::(?P<name>[^:/\\]+))?")
_FORMATS: list[Format] = []
_BY_NAME: dict[str, Format] = {}
_FIRST = (
    *("hermes", "qwen25", "qwen3_coder", "llama3", "mistral", "deepseekv3", "deepseekv31"),
    *("glm45", "kimi_k2", "pythonic", "gpt-oss"),
)
"""Messages list the formats, and marks are searched, in this order; the others follow as they are
declared."""


def format_names() -> tuple[str, ...]:
    """Return the names of all formats, without aliases."""
    return tuple(form.name for form in _FORMATS)


def get_format(name: str) -> Format:
    """Return the format called ``name``, or the one that the YAML file of this name declares
    (``FILE.yaml:NAME``).

    Raises UnknownFormatError, proposing a near match, if there is none.
    """
    form = _BY_NAME.get(name) or _BY_NAME.get(name.lower().replace("-", "_"))
    if form is None and (found := _FILE.fullmatch(name)):
        form = _from_file(Path(found["file"]), found["name"])
    if form is None:
        raise UnknownFormatError(f"There is no tool-call format {name!r}: {near(name, _BY_NAME)}")
    return form


def format_for(*, template: str | None = None, model: str | None = None) -> Format | None:
    """Return the format whose signs the template has, or whose pattern the id of the model matches;
    None if none.

    The template decides if both are given: people train models with other templates than their own.
    Of several formats the one with the longest signs, or with the first and longest match, is the
    most special.
    """
    found: list[tuple[tuple[int, int], Format]] = []
    for form in _FORMATS:
        if template and form.signs and all(sign in template for sign in form.signs):
            found.append(((0, sum(map(len, form.signs))), form))
    for form in _FORMATS if not found and model else ():
        if form.models and (match := re.search(form.models, model or "", re.IGNORECASE)):
            found.append(((-match.start(), len(match[0])), form))
    return max(found, key=lambda pair: pair[0])[1] if found else None


def _from_file(path: Path, wanted: str | None) -> Format:
    forms = {form.name: form for form in _read_formats(path)}
    for name, form in forms.items():
        if _BY_NAME.get(name) in _FORMATS:
            raise FormatError(f"{path}: there is a format {name} already; give yours another name")
        _BY_NAME[name] = form
    if wanted is None and len(forms) != 1:
        raise FormatError(f"{path} declares {', '.join(forms) or 'no format'}: write {path}:NAME")
    if wanted is not None and wanted not in forms:
        raise UnknownFormatError(f"{path} declares no format {wanted!r}: {near(wanted, forms)}")
    return forms[wanted or next(iter(forms))]


def _discover() -> None:
    found: list[Format] = [declared.build() for declared in DECLARED]
    for module in pkgutil.iter_modules(families.__path__):
        for item in vars(importlib.import_module(f"{families.__name__}.{module.name}")).values():
            if inspect.isclass(item) and issubclass(item, Format) and hasattr(item, "name"):
                found.append(item())
    for form in sorted(
        found, key=lambda form: _FIRST.index(form.name) if form.name in _FIRST else len(_FIRST)
    ):
        _FORMATS.append(form)
        _BY_NAME.update(dict.fromkeys((form.name, *form.aliases), form))
        for mark in form.marks:
            MARKS.setdefault(mark, []).append(form.name)


_discover()
