"""Modules that are imported when they are first used: every worker collects all tests, and runs
only some of them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Lazy:
    """Stands for a module until one of its names is used. What pytest asks of everything in a test
    module is no use."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__") or attribute == "pytestmark":
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)
