"""A stranger's scenario runs nothing: the code and the classes that a file names run only if the user trusts it."""

from __future__ import annotations

from collections.abc import Iterable

from sfusion.harness.errors import Untrusted
from sfusion.harness.lab.runs.tasks import Task


def check_trusted(tasks: Iterable[Task]) -> None:
    """Raise Untrusted if a task would run what an untrusted file names."""
    problems: dict[str, None] = {}
    for task in tasks:
        if task.trusted:
            continue
        for path, what, place in task.scenario.runs():
            if path[0] == "tools" and task.tools_given:
                continue
            key = ".".join(map(str, path))
            found = place or task.name
            problems[f"{found}: {key}: this would {what}; if you trust the file, add --trust"] = None
    if problems:
        raise Untrusted(list(problems))
