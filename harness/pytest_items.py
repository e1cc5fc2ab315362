"""Scenario files as pytest items; imported only when pytest collects one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .lab.runs import PromisesBroken, Task, run_one, written_run
from .lab.runs.reporting import report_of_result
from .lab.runs.tasks import find_modules_beside
from .lab.scenarios import ScenarioError, read_scenarios
from .lab.scenarios.model import Scenario
from .reports import write_page


class ScenarioFile(pytest.File):
    """One scenario file; each cell of its matrix is an item."""

    def collect(self) -> Iterator[ScenarioItem]:
        """Read the file; problems are reported as `sfusion check` reports them."""
        try:
            cells = read_scenarios(self.path)
        except ScenarioError as error:
            raise self.CollectError(str(error)) from None
        for cell in cells:
            item: ScenarioItem = ScenarioItem.from_parent(self, name=cell.title)
            item.scenario = cell
            yield item


class ScenarioItem(pytest.Item):
    """One cell, run in virtual time."""

    scenario: Scenario

    def runtest(self) -> None:
        """Run and judge the cell; with --sfusion-out also write the run to disk."""
        if "sim" not in self.scenario.worlds:
            pytest.skip(
                f"runs only in world {', '.join(self.scenario.worlds)}: sfusion run "
                f"--world ray {self.path.name}"
            )
        find_modules_beside([self.path])
        result = run_one(Task(self.scenario, "sim", self.path, trusted=True))
        self.user_properties += [
            ("sfusion_seed", self.scenario.seed),
            ("sfusion_journal", result.digest),
        ]
        out: str | None = self.config.getoption("--sfusion-out")
        if out is not None:
            with written_run(result, Path(out)) as folder:
                run = report_of_result(result, folder)
                write_page(run)
            self.add_report_section("call", "sfusion", run.replay)
        if not result.ok:
            raise PromisesBroken(result)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show the broken promises instead of a traceback, which would only show this file."""
        if isinstance(excinfo.value, PromisesBroken):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name
