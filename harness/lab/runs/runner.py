"""Plays tasks, in this process or in several, and judges them: the result of each run."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from sfusion_tools.errors import ConfigError, MissingExtra

from ...core.journal import Journal, first_difference
from ...core.verdict import How, Verdict
from ...errors import HarnessError, PromisesBroken, ScenarioError, exit_code_of
from ..promises import RunEvents
from ..promises.registry import check_run
from ..scenarios.model import Scenario
from ..scenarios.reading import parse_scenarios, read_scenarios, vary
from ..spreading import Workers, open_workers
from .effect import check_effect, unknown
from .tasks import Task, check_trusted, find_modules_beside

ERROR = "error"
"""In place of a promise: the run itself failed."""


@dataclass(frozen=True)
class RunResult:
    """One cell that was run and judged."""

    task: Task
    journal: Journal
    verdicts: list[Verdict]
    wall_seconds: float
    difference: str = ""
    """With --twice: where the two runs differ."""
    error: str = ""
    """Why it could not be run."""
    error_how: How | None = None
    """The error as data."""
    error_code: int = 0
    """The exit code that the error stands for: it is not a broken promise."""
    implied: Sequence[Verdict] = ()
    """On implied promises that are not broken."""

    @cached_property
    def digest(self) -> str:
        """The digest of the journal; computed when it is asked for, which takes as long as
        judging the run."""
        return self.journal.digest()

    @property
    def exit_code(self) -> int:
        """Return 0 if every promise held, 1 if not, and the code of the error if it could not be
        run."""
        return self.error_code or (0 if self.ok else 1)

    @property
    def ok(self) -> bool:
        """Did every promise hold, and did a second run write the same journal? Unknown is not a
        pass."""
        return self.state == "held"

    @property
    def state(self) -> str:
        """Return the worst of the verdicts: broken, unknown or held. Unknown if no promise
        applies."""
        states = {verdict.state for verdict in self.verdicts}
        if self.error or self.difference or "broken" in states:
            return "broken"
        return "unknown" if "unknown" in states or "held" not in states else "held"


def place_of(error: BaseException, key: str = "lineno") -> str:
    """Return where an error was raised: file and line, or with ``name`` file and function."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    last = frames[-1]
    return f"{Path(last.filename).name}:{getattr(last, key)}"


def how_raised(promise: str, error: BaseException | None, **more: str) -> How:
    """Return what was raised, by type and function; ``promise`` is what stands in place of one."""
    facts: dict[str, str] = {}
    if error is not None:
        facts = {"raised": type(error).__name__, "function": place_of(error, "name")}
    return How(promise, "raised", (*facts.items(), *more.items()))


Player = Callable[[Scenario], Journal]
Finished = TypeVar("Finished")


def play(task: Task) -> Journal:
    """Run a task in its world and return the journal."""
    if task.scenario.episodes is not None:
        from .episodes import play as play_episodes

        return play_episodes(task.scenario, task.world)
    if task.scenario.has_single_calls:
        from .clients import play_single_calls

        return play_single_calls(task.scenario, task.world)
    if task.world == "sim":
        from ..worlds import sim

        return sim.run(task.scenario)
    if task.world == "wall":
        from ..worlds import wall

        return wall.run(task.scenario)
    try:
        from ..worlds import ray
    except ImportError as error:
        raise MissingExtra("world ray", "ray", error) from error
    return ray.run(task.scenario)


def run_one(task: Task, *, twice: bool = False, player: Player | None = None) -> RunResult:
    """Play one task and check its promises.

    With ``twice`` it is played again, and the journals are compared byte by byte. Raises Untrusted
    for a task that would run what an untrusted file names. ``player`` plays it instead of the
    task's world, for example on a cluster that is already open.
    """
    check_trusted([task])
    began = time.perf_counter()
    scenario = task.scenario
    play_it = partial(play, task) if player is None else partial(player, scenario)
    try:
        journals = [play_it() for _ in range(2 if twice else 1)]
        _refuse_slow_patterns(task, journals)
    except (HarnessError, MissingExtra):
        raise
    except (Exception, SystemExit) as error:
        # One run that cannot be played must not take the others with it.
        return _failed(task, error, time.perf_counter() - began)

    run = RunEvents(journals[0])
    verdicts, implied = check_run(run, scenario.promises)
    verdicts += check_effect(scenario, run)
    difference = _difference(*journals) if twice else ""
    return RunResult(
        task,
        journals[0],
        verdicts,
        wall_seconds=time.perf_counter() - began,
        difference=difference,
        implied=implied,
    )


def _failed(task: Task, error: BaseException, took: float) -> RunResult:
    """Return the result of a run that raised an error."""
    scenario = task.scenario
    head = Journal.begin(
        scenario=scenario.scenario, cell=scenario.cell, seed=scenario.seed, world=task.world
    )
    return RunResult(
        task,
        head,
        verdicts=[],
        wall_seconds=took,
        error=_sentence(error),
        error_how=how_raised(ERROR, error),
        error_code=exit_code_of(error),
    )


def _difference(journal: Journal, again: Journal) -> str:
    """Say where two journals differ; empty if they do not."""
    found = first_difference(journal, again)
    if found is None:
        return ""
    line, was, then = found
    return f"line {line} of the journal was {was} and then {then}"


def _refuse_slow_patterns(task: Task, journals: Iterable[Journal]) -> None:
    """Raise ScenarioError if a search for a pattern was given up.

    The fake answered with a 500, which says nothing about the tool.
    """
    for journal in journals:
        for event in journal.events:
            if event["event"] == "slow_pattern":
                raise ScenarioError([f"{task.file or task.scenario.title}: {event['why']}"])


def _sentence(error: BaseException) -> str:
    if isinstance(error, ConfigError):
        return str(error)
    return f"the run failed with {type(error).__name__}: {error} ({place_of(error)})"


def run_all(
    tasks: Iterable[Task],
    *,
    jobs: int = 1,
    twice: bool = False,
    player: Player | None = None,
    workers: Workers | None = None,
) -> Iterator[RunResult]:
    """Yield results in the order of the tasks, each as soon as it and those before it are done.

    They run in ``jobs`` processes, or on ``workers`` that are already open; a ``player`` needs
    those of this process.
    """
    tasks = list(tasks)
    run = partial(_run_beside_twin, twice=twice, player=player)
    with nullcontext(workers) if workers else open_workers(min(jobs, len(tasks)) or 1) as opened:
        yield from opened.map(run, _with_twins(tasks))


def finish_all(
    tasks: Iterable[Task],
    finish: Callable[[RunResult], Finished],
    *,
    workers: Workers,
    twice: bool = False,
    player: Player | None = None,
) -> Iterator[Finished]:
    """Yield what ``finish`` makes of each result, in the order of the tasks.

    It is called in the process that ran the task, so that neither journals come back nor this
    process writes what all others wait for. The longest tasks begin first.
    """
    run = partial(_run_and_finish, finish=finish, twice=twice, player=player)
    yield from workers.map(run, _with_twins(tasks), effort=_effort)


def _run_beside_twin(pair: tuple[Task, str], *, twice: bool, player: Player | None) -> RunResult:
    """Play a task; one that is the same as another cell of its scenario shows nothing."""
    task, twin = pair
    result = run_one(task, twice=twice, player=player)
    if not twin:
        return result
    return replace(result, verdicts=[*result.verdicts, unknown([twin])])


def _run_and_finish(
    pair: tuple[Task, str],
    *,
    finish: Callable[[RunResult], Finished],
    twice: bool,
    player: Player | None,
) -> Finished:
    return finish(_run_beside_twin(pair, twice=twice, player=player))


def _effort(pair: tuple[Task, str]) -> float:
    return pair[0].effort


def _with_twins(tasks: Iterable[Task]) -> Iterator[tuple[Task, str]]:
    """Yield tasks, each with a sentence if it is the same as an earlier cell of its scenario."""
    seen: dict[str, str] = {}
    for task in tasks:
        scenario = task.scenario
        other = scenario.cell
        if scenario.cell:
            other = seen.setdefault(str(scenario.model_dump()), scenario.cell)
        is_new = other == scenario.cell
        yield task, "" if is_new else f"cell `{scenario.cell}` is the same as cell `{other}`"


def _changed(cell: Scenario, changes: dict[str, Any]) -> Scenario:
    """Return a cell with other top-level keys; raise ScenarioError that names a wrong one."""
    try:
        return cell.changed(**changes)
    except ValidationError:
        return vary(cell, changes, "run_scenario")


def run_scenario(
    source: Path | str | dict[str, Any], *, check: bool = True, **changes: Any
) -> list[RunResult]:
    """Run a scenario in virtual time and return one result for each cell of its matrix; also a
    fixture of the plugin.

    ``source`` is the path of a file, YAML text or a dict. ``changes`` replace top-level keys
    (``seed=3``). Raises PromisesBroken unless ``check`` is false. The code and the classes that the
    source names are run: it is trusted, as everything that a test imports.
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
    if changes:
        cells = [_changed(cell, changes) for cell in cells]
    results = list(run_all(Task(cell, "sim", trusted=True) for cell in cells))
    if check:
        for result in results:
            if not result.ok:
                raise PromisesBroken(result)
    return results
