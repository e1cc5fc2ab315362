"""One case of a hunt: played and judged in any process. A case and its result can be pickled."""

from __future__ import annotations

import copy
import gc
import hashlib
import itertools
import json
import logging
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sfusion.harness.errors import HarnessError, Untrusted
from sfusion.harness.lab.journal import Journal
from sfusion.harness.lab.promises.registry import judge_timed
from sfusion.harness.lab.runs.result import RunResult
from sfusion.harness.lab.runs.runner import run_one
from sfusion.harness.lab.runs.tasks import Task, merged_tools
from sfusion.harness.lab.scenarios.base import Data
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.search.hunt.coverage import behaviour, strikes_of
from sfusion.harness.search.hunt.expectations import horizon_of, promises_of
from sfusion.harness.search.hunt.findings import HuntFinding, findings_in
from sfusion.harness.search.hunt.generate import named
from sfusion.harness.search.shrink.failure import ERROR, Failure

REAL_SECONDS = 60
"""Real time after which a case counts as hanging; a usual one takes some hundredths of a second."""

THAW = 64
"""After so many cases, garbage that was made between them is collected.

After a collection that looked at little, CPython looks at everything again and again: whatever was frozen must stay so.
"""
_played = itertools.count(1)


@dataclass(frozen=True)
class HuntCase:
    """A scenario to play, without name and promises."""

    number: int
    data: Data
    origin: str = "new"
    """How it came about: new, mutated, or near a scenario."""
    promises: tuple[Any, ...] = ()
    """Promises beside those that apply by construction."""

    @property
    def digest(self) -> str:
        """Return a hash of what is played; equal cases have equal digests."""
        return digest_of(self.data)


@dataclass(frozen=True)
class HuntResult:
    """What a case showed."""

    number: int
    digest: str
    findings: list[HuntFinding]
    behaviour: frozenset[str]
    strikes: frozenset[tuple[str, str]]
    states: dict[str, str] = field(default_factory=dict)
    """Promise and state."""
    outcomes: dict[str, int] = field(default_factory=dict)
    events: frozenset[str] = frozenset()
    """Events of the world that happened."""
    seconds: float = 0.0
    slowest: tuple[str, float] = ("", 0.0)
    """The promise that took longest to judge."""


def digest_of(data: Data) -> str:
    return hashlib.blake2b(json.dumps(data, sort_keys=True).encode(), digest_size=8).hexdigest()


def scenario_of(case: HuntCase, tools: list[dict[str, Any]] | None = None) -> Scenario:
    """Return the whole scenario of a case, with every promise that applies."""
    data = copy.deepcopy(case.data)
    if tools is not None:
        data["tools"] = merged_tools(tools, named(data))
    name = f"hunted-{case.digest}"
    bare = named(data)
    data["horizon"] = horizon_of(bare)
    stated = {next(iter(one)) if isinstance(one, dict) else one for one in case.promises}
    rest = [one for one in promises_of(bare) if (next(iter(one)) if isinstance(one, dict) else one) not in stated]
    return named(
        data, scenario=name, about=f"case {case.number} of a hunt ({case.origin})", promises=[*case.promises, *rest]
    )


class TooLong(KeyboardInterrupt):
    """Raised where a case has used up its real time. Tools may catch any Exception, and asyncio those of a task."""


HANG = Failure(ERROR, "TooLong: no end in time")
"""How a case fails that used up its real time."""


def play_case(case: HuntCase, tools: list[dict[str, Any]] | None = None) -> HuntResult:
    """Play and judge one case."""
    began = time.perf_counter()
    scenario = scenario_of(case, tools)
    logged: list[str] = []
    gc.freeze()  # the collection below looks only at what the case has made
    with _listening(logged):
        few = scenario.changed(promises=["every_call_ends_once"])  # all are judged below
        result = run_bounded(Task(few, "sim", tools_given=tools is not None))
        gc.collect()  # what nobody retrieved is reported here, by the case that left it behind
    if next(_played) % THAW == 0:
        gc.unfreeze()
        gc.collect()
    journal = result.journal
    if any(event["event"] == "worker_died" for event in journal.events):
        logged = [text for text in logged if "Unclosed" not in text]  # the dead close nothing
    if result.error:
        logged = []  # what it left behind
    result, times = _judged(result, scenario)
    verdicts = result.verdicts
    outcomes: dict[str, int] = {}
    for event in journal.events:
        if event["event"] == "returned" and event.get("outcome"):
            outcomes[event["outcome"]] = outcomes.get(event["outcome"], 0) + 1
    return HuntResult(
        case.number,
        case.digest,
        findings_in(result, logged),
        behaviour(journal, verdicts),
        strikes_of(journal),
        {verdict.promise: verdict.state for verdict in verdicts},
        outcomes,
        frozenset(event["event"] for event in journal.events if event["source"] == "world"),
        time.perf_counter() - began,
        max(times.items(), key=lambda item: item[1], default=("", 0.0)),
    )


def run_bounded(task: Task) -> RunResult:
    """Play a task, for a minute of real time at most; whatever is raised is the error of the result."""
    result = _run_bounded(task)
    if result.error:
        gc.collect()  # tasks that were broken off are destroyed here, not in the middle of something else
    return result


def _run_bounded(task: Task) -> RunResult:
    try:
        with _bounded(REAL_SECONDS):
            return run_one(task)
    except Untrusted:
        raise
    except (Exception, TooLong) as problem:
        scenario = task.scenario
        head = Journal.begin(scenario=scenario.scenario, cell="", seed=scenario.seed, world="sim")
        return RunResult(task, head, [], 0.0, error=_sentence(problem))


def _judged(result: RunResult, scenario: Scenario) -> tuple[RunResult, dict[str, float]]:
    """Return the result with the verdicts on every promise, and the seconds that each took."""
    if result.error:
        return result, {}
    try:
        verdicts, times = judge_timed(result.journal, scenario.promises)
    except Exception as problem:
        return replace(result, verdicts=[], error=_sentence(problem)), {}
    return replace(result, verdicts=verdicts), times


def _sentence(problem: BaseException) -> str:
    text = f"{type(problem).__name__}: {problem}"
    if isinstance(problem, HarnessError | TooLong):
        return text
    place = traceback.extract_tb(problem.__traceback__)[-1]
    return f"{text} ({Path(place.filename).name}:{place.lineno})"


class _Collector(logging.Handler):
    def __init__(self, logged: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._logged = logged

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage().splitlines()[0]
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
        self._logged.append(f"{record.name}: {text}")


@contextmanager
def _listening(logged: list[str]) -> Iterator[None]:
    """Collect errors that asyncio and aiohttp only log, and exceptions that nobody can raise."""
    handler, hook = _Collector(logged), sys.unraisablehook
    loggers = [logging.getLogger(name) for name in ("asyncio", "aiohttp")]
    before = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False

    def unraisable(found: Any) -> None:
        logged.append(f"unraisable: {type(found.exc_value).__name__}: {found.exc_value}")

    sys.unraisablehook = unraisable
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for logger, propagate in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.propagate = propagate


@contextmanager
def _bounded(seconds: float) -> Iterator[None]:
    """Interrupt what does not come to an end in real time. Only the main thread of a process can be interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise TooLong("no end in time")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # again and again: what is cancelled then may hang too
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
