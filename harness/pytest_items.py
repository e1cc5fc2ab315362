"""Scenario files as pytest items: loaded only when a run names some."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sfusion.harness.reports import RunReport, write_page
from sfusion.harness.runs import RunResult, Task, run_one, write_run
from sfusion.harness.scenarios import ScenarioError, parse_scenarios, read_scenarios
from sfusion.harness.scenarios.model import Scenario


class PromisesBroken(AssertionError):
    """Raised when a scenario was run and not every promise held; the message tells each of them."""

    def __init__(self, result: RunResult) -> None:
        self.result = result
        lines = [f"{result.task.name}: not every promise held (world {result.task.world}, seed {_seed(result)})"]
        lines += [f"  {one.state}: {one.promise}: {one.sentence}" for one in result.verdicts if not one.held]
        lines += [f"  {text}" for text in (result.error, result.difference) if text]
        super().__init__("\n".join(lines))


class ScenarioFile(pytest.File):
    """One scenario file; each cell of its matrix is an item."""

    def collect(self) -> Iterator[ScenarioItem]:
        """Read the file. Its mistakes are told as sfusion check tells them."""
        try:
            cells = read_scenarios(self.path)
        except ScenarioError as error:
            raise self.CollectError(str(error)) from None
        for cell in cells:
            item: ScenarioItem = ScenarioItem.from_parent(self, name=cell.title)
            item.scenario = cell
            yield item


class ScenarioItem(pytest.Item):
    """One cell, run on virtual time."""

    scenario: Scenario

    def runtest(self) -> None:
        """Run and judge it; with --sfusion-out also write it down, so that it can be replayed."""
        if "sim" not in self.scenario.worlds:
            pytest.skip(
                f"runs only in world {', '.join(self.scenario.worlds)}: sfusion run --world ray {self.path.name}"
            )
        result = run_one(Task(self.scenario, "sim", self.path))
        self.user_properties += [("sfusion_seed", _seed(result)), ("sfusion_journal", result.digest)]
        out: str | None = self.config.getoption("--sfusion-out")
        if out is not None:
            folder = write_run(result, Path(out))
            run = RunReport.of_result(result, folder)
            write_page(run)
            self.add_report_section("call", "sfusion", run.replay)
        if not result.ok:
            raise PromisesBroken(result)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Sentences instead of a traceback, which would only show this file."""
        if isinstance(excinfo.value, PromisesBroken):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where it is written, and what it is called."""
        return self.path, None, self.name


def run_scenario(source: Path | str | dict[str, Any], *, check: bool = True, **changes: Any) -> list[RunResult]:
    """Run a scenario given as a file, as YAML text or as data: one result for each cell of its matrix.

    ``changes`` replace parts of it (``seed=3``). Raises PromisesBroken unless ``check`` is false.
    """
    if isinstance(source, dict):
        import yaml

        source = yaml.safe_dump(source, sort_keys=False)
    is_text = isinstance(source, str) and "\n" in source
    cells = parse_scenarios(str(source), file="<scenario>") if is_text else read_scenarios(Path(source))
    results = [run_one(Task(cell.changed(**changes) if changes else cell, "sim")) for cell in cells]
    broken = next((result for result in results if not result.ok), None)
    if check and broken is not None:
        raise PromisesBroken(broken)
    return results


def _seed(result: RunResult) -> int:
    return result.task.scenario.seed
