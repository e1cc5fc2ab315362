"""Every mistake, from one module for each thing that they are about."""

from __future__ import annotations

from importlib import import_module

from tests.proof.mistake import MISTAKES as MISTAKES

# Importing a module registers its mistakes, in the order of the table.
for _module in ("limits", "requests", "scores", "learning", "tasks", "texts", "races"):
    import_module(f"{__name__}.{_module}")
