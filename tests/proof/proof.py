"""The proof: the good tool and our own stack on every cell, each mistake where it can show, and
what broke.

Rows say what must break. A run is a function of its cell, so the same rows come out on every
machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace

from sfusion.harness.commandline.keyword import read_keyword
from sfusion.harness.core.journal import Journal
from sfusion.harness.errors import BadOption
from sfusion.harness.lab.promises import PROMISES, Promise, Verdict, check_promises
from sfusion.harness.lab.runs.runner import run_one
from sfusion.harness.lab.runs.tasks import Task, adapt_tasks, read_tasks, select_tasks
from sfusion.harness.lab.scenarios import Scenario, scenario_files
from sfusion.harness.lab.spreading import open_workers
from tests.proof.changes import CHANGES
from tests.proof.mistake import in_cells
from tests.proof.mistakes import MISTAKES as MISTAKES
from tests.reference_tool import GoodTool, tool_config

GOOD, OWN = "good-tool", "own-stack"


@dataclass
class Row:
    """One line of the table: what was played, what must break, and what broke."""

    name: str
    about: str
    promise: str | None = None
    """The promise that names the mistake; None if nothing may break."""
    also: frozenset[str] = frozenset()
    shown_in: tuple[str, ...] = ()
    change: bool = False
    """It is a change to our own stack."""
    sentence: str = ""
    """What the promise says."""
    broken: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    cells: int = 0

    def add(self, cell: str, verdicts: Iterable[Verdict], error: str) -> None:
        """Add what one run showed."""
        self.cells += 1
        if error:
            self.errors.append(f"{cell}: {error}")
        for verdict in verdicts:
            if verdict.state == "broken":
                self.broken.add(verdict.promise)
            elif verdict.state == "unknown":
                self.unknown.add(verdict.promise)
            elif verdict.state == "held":
                self.held.add(verdict.promise)
            if verdict.promise == self.promise and verdict.state == "broken":
                self.sentence = self.sentence or verdict.sentence
            elif verdict.failed and verdict.promise not in self.also:
                self.errors.append(
                    f"{cell}: {verdict.state}: {verdict.promise}: {verdict.sentence}"
                )

    @property
    def problems(self) -> list[str]:
        """Say why the row proves nothing; empty if it does."""
        missed = (
            [f"{self.promise} did not break"]
            if self.promise and self.promise not in self.broken
            else []
        )
        return [*missed, *self.errors]


@dataclass(frozen=True)
class ProofRun:
    """One run of the proof."""

    row: str
    task: Task
    change: str = ""
    right: Task | None = None
    """The same cell with nothing wrong."""
    compared: bool = False
    """It is what a mistake is compared with."""


@dataclass(frozen=True)
class ProofRunResult:
    row: str
    cell: str
    verdicts: list[Verdict]
    error: str


def play(case: ProofRun) -> ProofRunResult:
    """Play one case, in any process.

    A mistake is judged by the promises of the scenario, and by all others that the right tool holds
    there.
    """
    with CHANGES[case.change].applied() if case.change else nullcontext():
        result = run_one(case.task)
    verdicts = [*result.verdicts]
    if case.compared:
        _held[_cell(case.task)] = _held_in(result.journal, case.task.scenario)
    if case.right is not None:
        held = _held_anyway(case.right)
        more = check_promises(result.journal, _other_promises(case.task.scenario))
        verdicts += [one for one in more if one.promise in held and one.state in ("held", "broken")]
    plain = [Verdict(one.promise, one.state, one.sentence) for one in verdicts]
    return ProofRunResult(case.row, case.task.name, plain, result.error)


_held: dict[tuple[str, str, str], frozenset[str]] = {}
"""What was held by right tools that this process has played."""


def _held_anyway(task: Task) -> frozenset[str]:
    """Return the promises that a right tool holds in a cell although its scenario does not name
    them."""
    if _cell(task) not in _held:
        _held[_cell(task)] = _held_in(run_one(task).journal, task.scenario)
    return _held[_cell(task)]


def _cell(task: Task) -> tuple[str, str, str]:
    return task.name, str(task.scenario.tools), str(task.scenario.schedule)


def _held_in(journal: Journal, scenario: Scenario) -> frozenset[str]:
    return frozenset(
        one.promise for one in check_promises(journal, _other_promises(scenario)) if one.held
    )


def _other_promises(scenario: Scenario) -> list[Promise]:
    named = {promise.name for promise in scenario.promises}
    found = []
    for name, cls in PROMISES.items():
        if name not in named and (scenario.rollouts is not None or not cls.of_rollouts):
            with suppress(ValueError):  # it needs a parameter
                found.append(cls())
    return found


class Proof:
    """All rows, and the runs that fill them."""

    def __init__(self, keyword: str = "") -> None:
        self.whole = not keyword
        """Every row is played, so that a promise without a mistake is noticed."""
        self.rows: dict[str, Row] = {}
        self.cases: list[ProofRun] = []
        self._matches: Callable[[str], bool] = read_keyword(keyword)
        self._tasks = [
            task
            for task in read_tasks(scenario_files([]), "sim")
            if "sim" in task.scenario.worlds and task.scenario.episodes is None
        ]
        self._cells = {
            name: task
            for task in reversed(self._tasks)
            for name in (task.scenario.scenario, task.name)
        }
        self._add_the_right_ones()
        self._add_mistakes()
        self._add_changes()
        if not self.rows:
            raise BadOption(
                f"-k {keyword!r} matches no mistake; `python -m tests.proof --list` shows them"
            )

    def _add(
        self, row: Row, tasks: Iterable[Task], change: str = "", right: Iterable[Task] = ()
    ) -> None:
        assert row.name not in self.rows, f"two rows are called {row.name}"
        if self._matches(row.name):
            self.rows[row.name] = row
            beside = itertools.chain(right, itertools.repeat(None))
            self.cases += [
                ProofRun(row.name, task, change, same)
                for task, same in zip(tasks, beside, strict=False)
            ]

    def _add_the_right_ones(self) -> None:
        config = tool_config(GoodTool)
        about = "a right tool of another class"
        self._add(
            Row(GOOD, about), adapt_tasks(select_tasks(self._tasks, tools=config)[0], tools=config)
        )
        self._add(Row(OWN, "SandboxFusionTool and our limiter"), self._tasks)

    def _add_mistakes(self) -> None:
        for one in in_cells():
            row = Row(one.name, one.about, one.promise, one.also | {one.promise}, one.shown_in)
            cells = self._at(one.shown_in)
            tasks, right = (
                adapt_tasks(cells, tools=tool_config(tool), schedule=one.schedule)
                for tool in (one.tool, GoodTool)
            )
            self._add(row, tasks, right=right)

    def _add_changes(self) -> None:
        for one in (made for made in CHANGES.values() if made.shown_in):
            row = Row(one.name, one.about, one.promise, one.also, one.shown_in, change=True)
            self._add(row, self._at(one.shown_in), one.name, self._at(one.shown_in))

    def _at(self, names: Iterable[str]) -> list[Task]:
        return [self._cells[name] for name in names]

    def run(self, jobs: int = 1) -> Iterator[ProofRunResult]:
        """Play all cases and fill the rows; yield each result as it comes."""
        beside = {_cell(case.right) for case in self.cases if case.right is not None}
        cases = [
            replace(case, compared=case.right is None and _cell(case.task) in beside)
            for case in self.cases
        ]
        with open_workers(jobs) as workers:
            yield from map(self._taken, workers.map(play, cases))

    def _taken(self, result: ProofRunResult) -> ProofRunResult:
        self.rows[result.row].add(result.cell, result.verdicts, result.error)
        return result

    @property
    def gaps(self) -> list[str]:
        """Say which promises nothing can break, and which of them no change to our own stack
        breaks."""
        if not self.whole:
            return []
        found = []
        for name, cls in PROMISES.items():
            if cls.model_construct().only_single_calls:
                continue  # see tests/proof/trial.py
            if cls.of_episodes:
                continue  # see tests/harness/lab/worlds/test_episodes.py
            by = [row for row in self.rows.values() if row.promise == name and not row.problems]
            if not any(row.change for row in by):
                found.append(f"no change to our own stack breaks {name}: it may be unable to fail")
            if not cls.of_permits and not cls.of_rollouts and all(row.change for row in by):
                found.append(f"no mistake of another tool breaks {name}: it may be unable to fail")
        return found

    @property
    def mistakes(self) -> list[Row]:
        return [row for row in self.rows.values() if row.promise and not row.change]

    @property
    def changes(self) -> list[Row]:
        return [row for row in self.rows.values() if row.change]

    @property
    def right(self) -> list[Row]:
        """Return the rows in which nothing may break."""
        return [row for row in self.rows.values() if row.promise is None]

    @property
    def proved(self) -> bool:
        return not self.gaps and not any(row.problems for row in self.rows.values())
