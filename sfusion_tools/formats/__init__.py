"""Render tool calls as models write them, and parse them back, whole or as they stream.

    form = get_format("hermes")
    call = {"name": "code_interpreter", "arguments": {"code": "print(1)"}}
    text = form.render([call], content="Let me see.")
    form.parse(text).calls[0].arguments  # {'code': 'print(1)'}

A broken text is data, not an exception: the good calls are returned, and each refused call is a
``Problem``.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator
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
    "hermes",
    "qwen25",
    "qwen3_coder",
    "llama3",
    "mistral",
    "deepseekv3",
    "deepseekv31",
    "glm45",
    "kimi_k2",
    "pythonic",
    "gpt-oss",
)
"""Messages list the formats, and marks are searched, in this order.

The others follow as they are declared.
"""


def format_names() -> tuple[str, ...]:
    """Return the names of all formats, without aliases."""
    return tuple(form.name for form in _FORMATS)


def get_format(name: str) -> Format:
    """Return the format called ``name``.

    ``FILE.yaml``, or ``FILE.yaml:NAME`` if it has several, is a format that a YAML file declares.
    Raises UnknownFormatError, proposing a near match, if there is none.
    """
    form = _BY_NAME.get(name) or _BY_NAME.get(name.lower().replace("-", "_"))
    if form is not None:
        return form
    file = _FILE.fullmatch(name)
    if file:
        return _from_file(Path(file["file"]), file["name"])
    raise UnknownFormatError(f"There is no tool-call format {name!r}: {near(name, _BY_NAME)}")


def format_for(
    *,
    template: str | None = None,
    model: str | None = None,
    accept: Callable[[Format], bool] | None = None,
) -> Format | None:
    """Return the format of a chat template or of a model, by its id; None if none fits.

    The template decides if both are given: people train models with other templates than their own.
    A format of a file is preferred, once ``get_format`` has read it.
    With ``accept``, a template's format is the likeliest that it accepts.
    """
    for form in _of_template(template) if template else ():
        if accept is None or accept(form):
            return form
    return _of_model(model) if model else None


def _of_template(template: str) -> list[Format]:
    """Return the formats whose signs the template has.

    Those of files come first, and then those with the longest signs.
    """
    fitting = [
        form for form in _known() if form.signs and all(sign in template for sign in form.signs)
    ]
    return sorted(fitting, key=lambda form: (form in _FORMATS, -sum(map(len, form.signs))))


def _of_model(model: str) -> Format | None:
    """Return the format whose pattern matches the id; of several, the first and longest match.

    A format of a file is preferred to those that come with sfusion.
    """
    best: Format | None = None
    best_rank = (False, 0, 0)
    for form in _known():
        match = re.search(form.models, model, re.IGNORECASE) if form.models else None
        if match is None:
            continue
        rank = (form not in _FORMATS, -match.start(), len(match[0]))
        if best is None or rank > best_rank:
            best = form
            best_rank = rank
    return best


def _known() -> Iterable[Format]:
    """Return the formats that come with sfusion, and those of the files that were read."""
    return dict.fromkeys(_BY_NAME.values())


def _from_file(path: Path, wanted: str | None) -> Format:
    """Register the formats of a file and return the one that is wanted, or the only one."""
    forms = {form.name: form for form in _read_formats(path)}
    named = {name: form for form in forms.values() for name in (form.name, *form.aliases)}
    for name in named:
        if _BY_NAME.get(name) in _FORMATS:
            raise FormatError(f"{path}: there is a format {name} already; give yours another name")
    _BY_NAME.update(named)
    if wanted is None and len(forms) != 1:
        raise FormatError(f"{path} declares {', '.join(forms) or 'no format'}: write {path}:NAME")
    if wanted is not None and wanted not in forms:
        raise UnknownFormatError(f"{path} declares no format {wanted!r}: {near(wanted, forms)}")
    return forms[wanted or next(iter(forms))]


def _discover() -> None:
    """Register the formats that come with sfusion."""
    found = [declared.build() for declared in DECLARED]
    found += _formats_of_families()
    for form in sorted(found, key=_rank):
        _FORMATS.append(form)
        _BY_NAME.update(dict.fromkeys((form.name, *form.aliases), form))
        for mark in form.marks:
            MARKS.setdefault(mark, []).append(form.name)


def _formats_of_families() -> Iterator[Format]:
    """Yield the formats of the modules in ``families``."""
    for info in pkgutil.iter_modules(families.__path__):
        module = importlib.import_module(f"{families.__name__}.{info.name}")
        for item in vars(module).values():
            if inspect.isclass(item) and issubclass(item, Format) and hasattr(item, "name"):
                yield item()


def _rank(form: Format) -> int:
    return _FIRST.index(form.name) if form.name in _FIRST else len(_FIRST)


_discover()
