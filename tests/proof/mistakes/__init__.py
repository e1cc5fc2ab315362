"""Every mistake, from one module for each thing that they are about."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from tests.proof.mistake import MISTAKES as MISTAKES

_FIRST = ("limits", "requests", "scores", "learning", "tasks", "texts", "races")
"""The order of the table; modules that are not named here follow."""

# Importing a module registers its mistakes, and the changes that are beside them.
_found = [module.name for module in iter_modules([str(Path(__file__).parent)])]
for _module in dict.fromkeys((*_FIRST, *_found)):
    import_module(f"{__name__}.{_module}")
