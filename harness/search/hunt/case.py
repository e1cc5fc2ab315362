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
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ...core.journal import Event, Journal
from ...core.verdict import EVERYTHING_TOOK_EFFECT, How, Verdict
from ...errors import HarnessError, Untrusted
from ...lab.runs.runner import ERROR, RunResult, how_raised, place_of, run_one
from ...lab.runs.tasks import Task, merged_tools
from ...lab.scenarios.base import Data
from ...lab.scenarios.model import Scenario
from ...lab.worlds.replacing import diverted_logs, replaced
from ..shrink import Failure, failures_of
from .expectations import Expectation
from .generate import named

LOGGED = "error_logged"
"""In place of a promise: tool, fake or harness logged an error, or raised where nobody could catch
it."""
_UNCLOSED = "unclosed"
_LENGTH = 3
"""Of the sequences of events that count as a behaviour."""
_DETAILS = ("kind", "phase", "status", "outcome", "raised", "level", "ended_by")
"""Keys that make an event another behaviour; ids, times and texts do not."""
REAL_SECONDS = 60
"""Real time after which a case counts as hanging; a usual one takes some hundredths of a second."""

THAW = 64
"""After so many cases, garbage that was made between them is collected.

After a collection that looked at little, CPython looks at everything again and again: whatever was
frozen must stay so.
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
        return hashlib.blake2b(
            json.dumps(self.data, sort_keys=True).encode(), digest_size=8
        ).hexdigest()


@dataclass(frozen=True)
class HuntResult:
    """What a case showed."""

    findings: list[Failure]
    """What broke, each failure once."""
    behaviour: frozenset[str]
    strikes: frozenset[str]
    """Faults that struck, each with its phase: ``status before``."""
    states: dict[str, str] = field(default_factory=dict)
    """Promise and state."""
    outcomes: dict[str, int] = field(default_factory=dict)
    events: frozenset[str] = frozenset()
    """Events of the world that happened."""


def scenario_of(case: HuntCase, tools: list[dict[str, Any]] | None = None) -> Scenario:
    """Return the whole scenario of a case, with every promise that applies."""
    data = copy.deepcopy(case.data)
    if tools is not None:
        data["tools"] = merged_tools(tools, named(data))
    name = f"hunted-{case.digest}"
    expected = Expectation(named(data))
    data["horizon"] = expected.horizon
    stated = {
        next(iter(promise)) if isinstance(promise, dict) else promise for promise in case.promises
    }
    rest = [
        promise
        for promise in expected.promises()
        if (next(iter(promise)) if isinstance(promise, dict) else promise) not in stated
    ]
    return named(
        data,
        scenario=name,
        about=f"case {case.number} of a hunt ({case.origin})",
        promises=[*case.promises, *rest],
    )


class TooLong(KeyboardInterrupt):
    """Raised where a case has used up its real time. Tools may catch any Exception, and asyncio
    those of a task."""


HANG = Failure(How(ERROR, "raised", (("raised", TooLong.__name__),)))
"""How a case fails that used up its real time."""


def play_case(case: HuntCase, tools: list[dict[str, Any]] | None = None) -> HuntResult:
    """Play and judge one case."""
    scenario = scenario_of(case, tools)
    logged: list[Failure] = []
    gc.freeze()  # the collection below looks only at what the case has made
    with _listening(logged):
        result = run_bounded(Task(scenario, "sim", tools_given=tools is not None))
        gc.collect()  # what nobody retrieved is reported here, by the case that left it behind
    if next(_played) % THAW == 0:
        gc.unfreeze()
        gc.collect()
    journal = result.journal
    events = frozenset(event["event"] for event in journal.events if event["source"] == "world")
    if "worker_died" in events:
        logged = [
            verdict for verdict in logged if verdict.how.kind != _UNCLOSED
        ]  # the dead close nothing
    if result.error:
        logged = []  # what it left behind
    verdicts = [
        verdict
        for verdict in (*result.verdicts, *result.implied)
        if verdict.promise != EVERYTHING_TOOK_EFFECT
    ]
    outcomes = Counter(
        event["outcome"]
        for event in journal.events
        if event["event"] == "returned" and event.get("outcome")
    )
    struck = (event for event in journal.events if event["event"] == "strike")
    return HuntResult(
        findings=list(dict.fromkeys([*failures_of(result), *_errors_in(journal), *logged])),
        behaviour=behaviour(journal, verdicts),
        strikes=frozenset(
            f"{event['kind']} {event['phase']}" for event in struck if "kind" in event
        ),
        states={verdict.promise: verdict.state for verdict in verdicts},
        outcomes=outcomes,
        events=events,
    )


def run_bounded(task: Task) -> RunResult:
    """Play a task, for a minute of real time at most; whatever is raised is the error of the
    result."""
    try:
        with _bounded(REAL_SECONDS):
            result = run_one(task)
    except Untrusted:
        raise
    except (Exception, TooLong) as problem:
        head = Journal.begin(
            scenario=task.scenario.scenario, cell="", seed=task.scenario.seed, world="sim"
        )
        text = f"{type(problem).__name__}: {problem}"
        how = how_raised(ERROR, problem)
        if isinstance(problem, TooLong):
            how = HANG.how
        elif not isinstance(problem, HarnessError):
            text += f" ({place_of(problem)})"
        result = RunResult(task, head, [], 0.0, error=text, error_how=how)
    if result.error:
        # tasks that were broken off are destroyed here, not in the middle of something else
        gc.collect()
    return result


def _errors_in(journal: Journal) -> Iterator[Failure]:
    """Yield the errors that our own code logged; the place tells them apart."""
    for event in journal.events:
        if event["event"] == "log" and event.get("level") == "error":
            yield Failure(
                How(LOGGED, "logged", (("place", event.get("place", "")),)), event["text"]
            )


def behaviour(journal: Journal, verdicts: Iterable[Verdict]) -> frozenset[str]:
    """Return what a run showed, as short texts."""
    sequences: dict[str, list[str]] = {}
    strikes: set[str] = set()
    for event in journal.events:
        token = _token(event)
        for key in ("call", "permit", "rollout"):
            if (name := event.get(key)) is not None:
                sequences.setdefault(f"{key} {name}", [key]).append(token)
        if event["source"] == "world" and "call" not in event:
            sequences.setdefault("world", ["world"]).append(token)
        if event["event"] == "strike":
            strikes.add(f"{event.get('kind', 'engine')}@{event.get('phase', '-')}")
    found = {gram for tokens in sequences.values() for gram in _grams(tokens)}
    found |= {
        f"promise {verdict.promise} {verdict.state} {strike}"
        for verdict in verdicts
        for strike in strikes or {"-"}
    }
    return frozenset(found)


def _token(event: Event) -> str:
    details = [str(event[key]) for key in _DETAILS if event.get(key) is not None]
    return ":".join([str(event["event"]), *details])


def _grams(tokens: Sequence[str]) -> Iterator[str]:
    for start in range(max(1, len(tokens) - _LENGTH + 1)):
        yield " ".join(tokens[start : start + _LENGTH])


class _Collector(logging.Handler):
    def __init__(self, logged: list[Failure]) -> None:
        super().__init__(logging.ERROR)
        self._logged = logged

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage().splitlines()[0]
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            how = how_raised(LOGGED, error, logger=record.name)
            text += f": {type(error).__name__}: {error}"
        else:
            # The words are those of asyncio and aiohttp, which log all of this at one place.
            kind = _UNCLOSED if text.startswith("Unclosed") else "logged"
            how = How(LOGGED, kind, (("logger", record.name), ("message", text)))
        self._logged.append(Failure(how, f"{record.name}: {text}"))


@contextmanager
def _listening(logged: list[Failure]) -> Iterator[None]:
    """Collect errors that asyncio and aiohttp only log, and exceptions that nobody can raise."""

    def unraisable(found: Any) -> None:
        error = found.exc_value
        how = how_raised(LOGGED, error)
        if isinstance(error, ResourceWarning):
            how = replace(how, kind=_UNCLOSED)
        logged.append(Failure(how, f"unraisable: {type(error).__name__}: {error}"))

    with (
        diverted_logs(_Collector(logged), "asyncio", "aiohttp"),
        replaced(sys, unraisablehook=unraisable),
    ):
        yield


@contextmanager
def _bounded(seconds: float) -> Iterator[None]:
    """Interrupt what does not come to an end in real time. Only the main thread of a process can be
    interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise TooLong("no end in time")

    before = signal.signal(signal.SIGALRM, interrupt)
    # Again and again: what is cancelled then may hang too.
    timer = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *timer)  # somebody else's, as a limit of a test
