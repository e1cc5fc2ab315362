"""Run and judge a scenario from Python; the fixture ``run_scenario`` is the same function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sfusion.harness.errors import PromisesBroken
from sfusion.harness.lab.runs.result import RunResult
from sfusion.harness.lab.runs.runner import run_all
from sfusion.harness.lab.runs.tasks import Task
from sfusion.harness.lab.runs.tool_classes import find_modules_beside
from sfusion.harness.lab.scenarios.reading import parse_scenarios, read_scenarios


def run_scenario(source: Path | str | dict[str, Any], *, check: bool = True, **changes: Any) -> list[RunResult]:
    """Run a scenario in virtual time and return one result for each cell of its matrix.

    ``source`` is the path of a file, YAML text or a dict. ``changes`` replace top-level keys (``seed=3``). Raises
    PromisesBroken unless ``check`` is false. The code and the classes that the source names are run: it is
    trusted, as everything that a test imports.
    """
    if isinstance(source, dict):
        import yaml

        source = yaml.safe_dump(source, sort_keys=False)
    is_text = isinstance(source, str) and "\n" in source
    if is_text:
        cells = parse_scenarios(str(source), file="<scenario>")
    else:
        cells = read_scenarios(Path(source))
        find_modules_beside([Path(source)])
    results = list(run_all(Task(cell.changed(**changes) if changes else cell, "sim", trusted=True) for cell in cells))
    broken = next((result for result in results if not result.ok), None)
    if check and broken is not None:
        raise PromisesBroken(broken)
    return results
