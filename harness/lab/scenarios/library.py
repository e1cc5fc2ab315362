"""Finds scenario files: the bundled ones, and those named on a command line."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from sfusion.harness.errors import ScenarioError
from sfusion_tools.errors import near

JOURNAL = "journal.ndjson"
"""The name of a recorded run's journal."""


def bundled_folder() -> Path:
    """Return the folder of the bundled scenarios, which are data of the package ``sfusion``."""
    return Path(str(files("sfusion"))) / "scenarios"


def is_bundled(file: Path) -> bool:
    """Is this one of the bundled files, or a link to one?"""
    return file.resolve().is_relative_to(bundled_folder().resolve())


def scenario_files(given: list[str]) -> list[Path]:
    """Return the files for paths of files, folders or names of bundled scenarios; for none, all bundled ones."""
    if not given:
        return in_folder(bundled_folder())
    found: list[Path] = []
    for one in given:
        path = Path(one)
        if path.is_dir():
            inside = in_folder(path)
            if not inside:
                raise ScenarioError([f"{path}: no scenario file (*.yaml) in this folder"])
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            found.append(_bundled(one))
    return list(dict.fromkeys(found))


def in_folder(folder: Path) -> list[Path]:
    """Return the scenario files below a folder.

    Files whose name begins with _ only serve `extends`; a file beside a journal is part of a recorded run.
    """
    found = [path for pattern in ("*.yaml", "*.yml") for path in folder.rglob(pattern)]
    wanted = (path for path in found if not path.name.startswith("_") and not path.with_name(JOURNAL).exists())
    return sorted(wanted, key=lambda path: (path.parent, path.stem))


def _bundled(name: str) -> Path:
    files = {path.stem: path for path in in_folder(bundled_folder())}
    if name in files:
        return files[name]
    hint = near(name, files)
    if not hint.startswith("did you mean"):
        hint = "see `sfusion list` for the bundled ones"
    raise ScenarioError([f"{name}: no such file, folder or bundled scenario; {hint}"])
