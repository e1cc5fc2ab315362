"""The tool classes that scenarios and tool configs name: where they are found, and whether they can be imported."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from sfusion.harness.lab.runs.tasks import Task
from sfusion.harness.lab.scenarios.tools import is_own
from sfusion_tools.tool_registry import load_class


def find_modules_beside(files: Iterable[Path]) -> None:
    """Let modules in the folders of these files, which must be trusted, be imported; new processes inherit that."""
    for folder in dict.fromkeys(str(file.resolve().parent) for file in files):
        if folder not in sys.path:
            sys.path.append(folder)


def check_classes(tasks: Iterable[Task]) -> None:
    """Import every tool class once, so that a wrong name is reported before anything runs; raise ConfigError."""
    named: dict[str, str] = {}
    for task in tasks:
        if isinstance(task.scenario.tools, list):
            for number, entry in enumerate(task.scenario.tools):
                if not is_own(entry):
                    named.setdefault(str(entry.get("class_name")), f"tools[{number}]")
    for name, place in named.items():
        load_class(f"{place} ({name})", name)
