"""Optional dependencies, imported where they are first needed."""

from __future__ import annotations

import importlib
from typing import Any

from sfusion_tools.errors import MissingExtra


def import_extra(module: str, *, extra: str, needed_by: str) -> Any:
    """Import a module that only ``sfusion[extra]`` installs; MissingExtra tells the reader how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        raise MissingExtra(needed_by, extra, missing) from missing
