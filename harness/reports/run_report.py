"""A run as the reports show it, its verdicts, its settings and its journal; and the report on the
terminal."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TextIO

from rich.text import Text

from sfusion_tools.wording import counted

from ..core.journal import Event, Journal
from ..core.place import Place
from ..core.run_events import RunEvents
from ..core.verdict import State, Verdict
from ..terminal import ProgressReporter

STATES: tuple[State, ...] = ("broken", "unknown", "held", "not_applicable")
"""In the order in which reports list them."""


@dataclass(frozen=True)
class EventFigures:
    """What the reports about all runs say of the events of one."""

    events: int = 0
    calls: int = 0
    """Calls made."""
    seconds: float = 0.0
    """Duration on the clock of its world."""
    unplanned: Sequence[str] = ()
    """Deaths of the limiter that no kill explains: they come before what they caused."""


def figures_of(events: Sequence[Event]) -> EventFigures:
    """Count the events of a run."""
    counts = Counter(event["event"] for event in events)
    times = [float(event["at"]) for event in events]
    return EventFigures(
        events=len(events),
        calls=counts["called"] or counts["call_started"],
        seconds=max(times) - min(times) if times else 0.0,
        unplanned=_unplanned(events),
    )


def _unplanned(events: Iterable[Event]) -> list[str]:
    found = []
    killed = False
    for event in events:
        killed = killed or event["event"] == "killed"
        if event["event"] == "limiter_died":
            if not killed:
                found.append(
                    f"the limiter died at {float(event['at']):.3g} s, which no event "
                    "of the scenario asked for"
                )
            killed = False
    return found


@dataclass(frozen=True)
class RunReport:
    """One scenario, or one cell of its matrix, that was run and judged."""

    scenario: str
    verdicts: Sequence[Verdict]
    cell: str = ""
    about: str = ""
    world: str = "sim"
    sandboxes: Sequence[str] = ()
    """The real sandboxes it ran against; empty for the fake."""
    seed: int = 0
    sfusion: str = ""
    events: Sequence[Event] = ()
    """Empty also if only the figures are known."""
    read_source: Callable[[], str] = str
    """Returns the text of the scenario file, which takes a while to write; empty if only the
    results are known."""
    wall_seconds: float | None = None
    directory: str = ""
    """The folder of its files, relative to the working directory; empty if nothing was written."""
    runs_code: bool = False
    """Runs what its file names, so that running it again needs --trust."""
    error: str = ""
    """Why it could not be run, or why its result cannot be trusted."""
    place: Place | None = None
    """Where what was judged is defined, if that is known."""
    tolerated: Sequence[tuple[str, Verdict]] = ()
    """What neither passes nor fails, each with the word for it: unknown or accepted."""
    known: EventFigures | None = None
    """The figures of the events; by default they are counted."""
    known_outcomes: Mapping[str, int] | None = None

    @cached_property
    def figures(self) -> EventFigures:
        return self.known or figures_of(self.events)

    @cached_property
    def outcomes(self) -> Mapping[str, int]:
        """How many calls ended in which way."""
        if self.known_outcomes is not None:
            return self.known_outcomes
        records = RunEvents(Journal({}, list(self.events))).records
        return dict(sorted(Counter(call.kind for call in records).items()))

    def without_events(self, *, outcomes: bool) -> RunReport:
        """Return what the reports about all runs need.

        Outcomes, which only JSON has, take as long to count as a run to judge.
        """
        counted_outcomes = self.outcomes if outcomes else {}
        return replace(
            self, events=(), read_source=str, known=self.figures, known_outcomes=counted_outcomes
        )

    @cached_property
    def source(self) -> str:
        return self.read_source()

    @property
    def name(self) -> str:
        """The scenario, with its cell in brackets."""
        return f"{self.scenario}[{self.cell}]" if self.cell else self.scenario

    @property
    def state(self) -> State:
        """The worst state of the verdicts. A run with an error is broken, one without promises
        unknown."""
        if self.error:
            return "broken"
        return next((state for state in STATES[:3] if self.in_state(state)), "unknown")

    @property
    def replay(self) -> str:
        """The command that runs it again; empty if nothing was written."""
        if not self.directory:
            return ""
        trust = " --trust" if self.runs_code else ""
        if self.sandboxes:
            targets = " ".join(f"--sandbox {shlex.quote(sandbox)}" for sandbox in self.sandboxes)
            return f"sfusion run {shlex.quote(self.directory + '/scenario.yaml')} {targets}{trust}"
        return f"sfusion replay {shlex.quote(self.directory)}{trust}"

    def in_state(self, state: State) -> list[Verdict]:
        return [verdict for verdict in self.verdicts if verdict.state == state]

    @property
    def score(self) -> str:
        """How many of the promises that apply held."""
        held = len(self.in_state("held"))
        apply = len(self.verdicts) - len(self.in_state("not_applicable"))
        return f"{held}/{apply}"

    @property
    def unplanned(self) -> Sequence[str]:
        """Deaths of the limiter that no kill explains: they come before what they caused."""
        return self.figures.unplanned

    @property
    def calls(self) -> int:
        """Number of calls made."""
        return self.figures.calls

    @property
    def seconds(self) -> float:
        """Duration on the clock of its world."""
        return self.figures.seconds


def headline(runs: Sequence[RunReport]) -> str:
    """One sentence about all runs."""
    counts: Counter[str] = Counter(run.state for run in runs)
    total = counted(len(runs), "run")
    if not runs:
        return "Nothing was run."
    if counts["held"] == len(runs):
        return f"{total}: every promise held."
    words = {
        "broken": "broke a promise",
        "unknown": "could not be judged completely",
        "held": "held",
    }
    parts = [f"{counts[state]} {said}" for state, said in words.items() if counts[state]]
    return f"{total}: {', '.join(parts)}."


def duration(seconds: float) -> str:
    """Seconds for people: ``0.12 s``, ``14.2 s``, ``3 min 5 s``, ``26 h 10 min``."""
    if seconds >= 7200:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"
    if seconds >= 120:
        return f"{int(seconds // 60)} min {seconds % 60:.0f} s"
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds:.3g} s"


def encodable(text: str) -> str:
    """The text with lone surrogates replaced, so that it can be written as UTF-8."""
    return text.encode("utf-8", "replace").decode()


_STYLES = {"held": "green", "broken": "bold red", "unknown": "yellow"}
_SAID_ONCE = ("unknown", "not_applicable")
_MANY_EVENTS = 10_000
"""Below this, starting takes longer than running, and a rate says nothing."""
_HEAD = ("", "scenario", "promises", "calls", "time", "took")


class RunReporter(ProgressReporter):
    """Shows each run that did not hold (with ``verbose``, each run) as it ends; ``finish`` prints
    the table."""

    def __init__(
        self,
        out: TextIO,
        total: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        verbose: bool = False,
    ) -> None:
        super().__init__(out, total, "running scenarios")
        self._clock = clock
        self._began = clock()
        self._verbose = verbose
        self._counts = dict.fromkeys(_STYLES, 0)

    def run_ended(self, run: RunReport) -> None:
        self._counts[run.state] += 1
        done = sum(self._counts.values())
        width = len(str(self._total))
        counts = [
            Text(f"{count} {state}", _STYLES[state])
            for state, count in self._counts.items()
            if count
        ]
        listed = self._verbose or run.state != "held"
        line = f"[{done:>{width}}/{self._total}] {run.state:<7} {run.name}" if listed else ""
        self.progress(done, Text("  ").join(counts), line=line)

    def finish(self, runs: Sequence[RunReport], note: str = "") -> None:
        """Print the table, then each promise that did not hold, and the headline with ``note``
        behind it."""
        listed = [run for run in runs if self._verbose or run.state != "held"]
        if listed:
            self.print()
            self.table([_row(run) for run in listed], _HEAD, [_STYLES[run.state] for run in listed])
            self.print()
        repeated = _repeated(runs)
        for run in runs:
            if run.state != "held" or run.unplanned:
                self._print_problems(run, repeated)
        self._print_repeated(repeated)
        self._print_speed(sum(run.figures.events for run in runs))
        states = {run.state for run in runs}
        worst = next((state for state in ("broken", "unknown") if state in states), "held")
        self.print(headline(runs) + note, _STYLES[worst])

    def _print_repeated(self, repeated: Mapping[str, _Repeated]) -> None:
        for sentence, places in repeated.items():
            state = places.state.replace("_", " ")
            promises = ", ".join(places.promises)
            self.print(f"{state} in {counted(places.runs, 'run')}: {promises}: {sentence}")
        if repeated:
            self.print()

    def _print_speed(self, events: int) -> None:
        """Print how fast the runs were, if that says something."""
        if events >= _MANY_EVENTS:
            took = self._clock() - self._began
            rate = events / took
            self.print(
                f"{events:,} events in {duration(took)}, {rate:,.0f} events per second", "dim"
            )

    def _print_problems(self, run: RunReport, repeated: Container[str]) -> None:
        shown = [
            *run.in_state("broken"),
            *(verdict for verdict in run.in_state("unknown") if verdict.sentence not in repeated),
        ]
        if not shown and not run.error and not run.unplanned:
            return
        self.print(run.name, "bold")
        for sentence in run.unplanned:
            self.print(f"  {sentence}; what follows may come from that", _STYLES["broken"])
        if run.error:
            self.print(f"  broken: {run.error}", _STYLES["broken"])
        for verdict in shown:
            self.print(
                f"  {verdict.state}: {verdict.promise}: {verdict.sentence}", _STYLES[verdict.state]
            )
        if run.replay:
            self.print(f"  {run.replay}", "dim")
        self.print()


@dataclass(frozen=True, slots=True)
class _Repeated:
    """Where something cannot be judged for one reason."""

    state: str
    promises: list[str]
    runs: int


def _repeated(runs: Sequence[RunReport]) -> dict[str, _Repeated]:
    """Find what cannot be judged for one reason in several places, by the sentence that says it."""
    places: dict[str, list[tuple[RunReport, Verdict]]] = {}
    for run in runs:
        for verdict in run.verdicts:
            places.setdefault(verdict.sentence, []).append((run, verdict))

    found = {}
    for sentence, same in places.items():
        state = same[0][1].state
        if not any(verdict.state in _SAID_ONCE for _, verdict in same):
            continue
        if len(same) > 1 or state == "not_applicable":
            promises = list(dict.fromkeys(verdict.promise for _, verdict in same))
            found[sentence] = _Repeated(state, promises, len({id(run) for run, _ in same}))
    return found


def _row(run: RunReport) -> tuple[str, ...]:
    took = "" if run.wall_seconds is None else duration(run.wall_seconds)
    return run.state, run.name, run.score, f"{run.calls:,}", duration(run.seconds), took
