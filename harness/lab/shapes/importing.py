"""What a user means by ``module:name`` or ``path/file.py:name``, imported."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from sfusion_tools.errors import near

from ...errors import BadOption


def loaded(text: str) -> tuple[ModuleType, Any]:
    """Import ``module:name`` or ``path/file.py:name``."""
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name:
        raise BadOption(
            f"{text}: give a function or class as module:name or file.py:name, a tool "
            "config (.yaml), or a command "
            "after --"
        )
    module = _module(place, text)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            names = [name for name in dir(found) if not name.startswith("_")]
            raise BadOption(f"{text}: {place} has no {part!r}; {near(part, names)}")
        found = getattr(found, part)
    methods = [getattr(found, method, None) for method in ("run", "run_code", "execute")]
    if not callable(found) and not any(map(callable, methods)):
        raise BadOption(
            f"{text}: is a {type(found).__name__}, which cannot be called; give a "
            f"function or a class{_or_methods(text, found)}, or a function of yours that calls it"
        )
    return module, found


def _module(place: str, text: str) -> ModuleType:
    """Import a module, which the user calls ``text``."""
    try:
        return _from_file(Path(place)) if place.endswith(".py") else _by_name(place)
    except BadOption:
        raise
    except ModuleNotFoundError as error:
        raise BadOption(
            f"{text}: importing {place} failed: {error}{_missing(error.name or '', place)}"
        ) from error
    except (Exception, SystemExit) as error:
        raise BadOption(
            f"{text}: importing {place} failed with {type(error).__name__}: {error}"
        ) from error


def _missing(module: str, place: str) -> str:
    """Say what to do about a module that the import of ``place`` did not find."""
    package = module.partition(".")[0]
    if package == place.partition(".")[0]:
        return "; run this in the folder of the module, or give its file as path/file.py:name"
    return (
        f"; install the package that has it beside sfusion, such as: {sys.executable} -m pip "
        f"install {package}"
    )


def _or_methods(text: str, found: Any) -> str:
    """Return the methods of an object that may be meant, as the end of a sentence."""
    public = [name for name, _ in inspect.getmembers(found, inspect.ismethod) if name[0] != "_"]
    return f", or a method: {', '.join(f'{text}.{name}' for name in public)}" if public else ""


def _by_name(name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    return importlib.import_module(name)


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise BadOption(f"{path}: there is no such file")
    if str(path.resolve().parent) not in sys.path:
        sys.path.insert(0, str(path.resolve().parent))
    name = path.stem if path.stem not in sys.modules else f"judged_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
