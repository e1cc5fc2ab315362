"""One module per model family, named like the one in ``sfusion_tools.formats.families``, with its ``DIALECTS``."""

from __future__ import annotations

import functools
import importlib
import importlib.util

from sfusion.fakes.sglang.dialect import Dialect
from sfusion_tools.formats import get_format

__all__ = ["dialect_of"]


@functools.cache
def dialect_of(form: str) -> Dialect:
    """Return the dialect of a format, by any of the format's names."""
    found = get_format(form)
    module = f"{__name__}.{type(found).__module__.rpartition('.')[2]}"
    if importlib.util.find_spec(module) is not None:
        declared: tuple[Dialect, ...] = importlib.import_module(module).DIALECTS
        for dialect in declared:
            if dialect.form == found.name:
                return dialect
    return Dialect(found.name)
