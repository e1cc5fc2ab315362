"""Plays tasks, in this process or in several, and judges them: the result of each run."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from sfusion_tools.errors import ConfigError, MissingExtra

from ....fakes.faults.pattern import slow_patterns
from ...core.journal import Journal, first_difference
from ...core.verdict import How, Verdict
from ...errors import HarnessError, PromisesBroken, ScenarioError, exit_code_of
from ..promises import Story
from ..promises.registry import judge_story
from ..scenarios.model import Scenario
from ..scenarios.reading import parse_scenarios, read_scenarios
from ..spreading import Workers, open_workers
from .effect import judge_effect, unknown
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
    return f"{Path(frames[-1].filename).name}:{getattr(frames[-1], key)}" if frames else ""


def how_raised(promise: str, error: BaseException | None, **more: str) -> How:
    """Return what was raised, by type and function; ``promise`` is what stands in place of one."""
    facts = (
        {"raised": type(error).__name__, "function": place_of(error, "name")}
        if error is not None
        else {}
    )
    return How(promise, "raised", (*facts.items(), *more.items()))


Player = Callable[[Scenario], Journal]


def play(task: Task) -> Journal:
    """Run a task in its world and return the journal."""
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
    """Play and judge one task; with ``twice`` play it again and compare the journals byte by byte.

    Raises Untrusted for a task that would run what an untrusted file names. ``player`` plays it
    instead of the task's world, for example on a cluster that is already open.
    """
    check_trusted([task])
    began = time.perf_counter()
    scenario = task.scenario
    try:
        journal = player(scenario) if player else play(task)
        again = (player(scenario) if player else play(task)) if twice else None
        if (
            slow_patterns
        ):  # a fake answers the request with a 500, which says nothing about the tool
            raise ScenarioError([f"{task.file or scenario.title}: {slow_patterns.popitem()[1]}"])
    except (HarnessError, MissingExtra):
        raise
    except (
        Exception,
        SystemExit,
    ) as error:  # one run that cannot be played must not take the others with it
        head = Journal.begin(
            scenario=scenario.scenario, cell=scenario.cell, seed=scenario.seed, world=task.world
        )
        took = time.perf_counter() - began
        code, how = exit_code_of(error), how_raised(ERROR, error)
        return RunResult(
            task, head, [], took, error=_sentence(error), error_how=how, error_code=code
        )
    story = Story(journal)
    verdicts, implied = judge_story(story, scenario.promises)
    verdicts += judge_effect(scenario, story)
    difference = ""
    if again is not None and (found := first_difference(journal, again)) is not None:
        difference = f"line {found[0]} of the journal was {found[1]} and then {found[2]}"
    return RunResult(
        task, journal, verdicts, time.perf_counter() - began, difference, implied=implied
    )


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
    run = partial(run_one, twice=twice, player=player)
    with (
        open_workers(max(1, min(jobs, len(tasks))))
        if workers is None
        else nullcontext(workers) as found
    ):
        yield from _compared(found.map(run, tasks))


def _compared(results: Iterable[RunResult]) -> Iterator[RunResult]:
    """Mark a cell of a matrix that is the same as another cell of its scenario."""
    seen: dict[str, str] = {}
    for result in results:
        scenario = result.task.scenario
        other = seen.setdefault(str(scenario.model_dump()), scenario.cell)
        if other != scenario.cell:
            same = unknown([f"cell `{scenario.cell}` is the same as cell `{other}`"])
            result = replace(result, verdicts=[*result.verdicts, same])
        yield result


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
    results = list(
        run_all(
            Task(cell.changed(**changes) if changes else cell, "sim", trusted=True)
            for cell in cells
        )
    )
    broken = next((result for result in results if not result.ok), None)
    if check and broken is not None:
        raise PromisesBroken(broken)
    return results
