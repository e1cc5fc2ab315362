"""One module per model family, with the ``DIALECTS`` of its formats."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sfusion.fakes.sglang.calls import CallStream, Extract
from sfusion.fakes.sglang.malformed_kinds import Maker
from sfusion.fakes.sglang.quirk_text import ToolTable
from sfusion_tools.formats import get_format

__all__ = ["Dialect", "dialect_of"]


@dataclass(frozen=True)
class Dialect:
    """What is special about one format; the defaults suit a format without recordings."""

    form: str
    parse: Callable[[str, ToolTable], Extract] | None = None
    """Parses a whole text like sglang."""
    stream: Callable[[Sequence[Any]], CallStream] | None = None
    """Makes a parser that streams like sglang, given the tools."""
    has_grammar: bool = True
    """False if constrained decoding does not support the format: forced calls are then a plain JSON array."""
    shown_name: str | None = None
    """The name in ``/model_info``, where sglang replaces a deprecated one."""
    numbered_ids: bool = False
    """Call ids are ``functions.NAME:NUMBER``, numbered across the conversation."""
    malformed: Mapping[str, Maker | None] = field(default_factory=dict)
    """Kinds of malformed text that are different in this format, or None for kinds that do not exist in it."""


@functools.cache
def dialect_of(form: str) -> Dialect:
    """Return the dialect of a format, by any of the format's names."""
    name = get_format(form).name
    return _dialects().get(name) or Dialect(name)


@functools.cache
def _dialects() -> dict[str, Dialect]:
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    return {dialect.form: dialect for module in modules for dialect in module.DIALECTS}
