"""A run as the reports show it: its verdicts, its settings and its journal."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from sfusion.harness.lab.journal import Event
from sfusion.harness.lab.promises.verdict import Verdict
from sfusion_tools.wording import counted

if TYPE_CHECKING:
    from sfusion.harness.lab.runs import RunResult

HELD, BROKEN, UNKNOWN, NOT_APPLICABLE = "held", "broken", "unknown", "not_applicable"
STATES = (BROKEN, UNKNOWN, HELD, NOT_APPLICABLE)
"""The states of a verdict, in the order in which reports list them."""


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
    read_source: Callable[[], str] = str
    """Returns the text of the scenario file, which takes a while to write; empty if only the results are known."""
    wall_seconds: float | None = None
    directory: str = ""
    """The folder of its files, relative to the working directory; empty if nothing was written."""
    runs_code: bool = False
    """Runs what its file names, so that running it again needs --trust."""
    error: str = ""
    """Why it could not be run, or why its result cannot be trusted."""

    @classmethod
    def of_result(cls, result: RunResult, folder: Path | None = None) -> RunReport:
        """The report of a result that was written to ``folder``, if it was written."""
        from sfusion.harness.lab.runs.directory import scenario_text  # with what it takes to run a scenario

        scenario, header = result.task.scenario, result.journal.header
        difference = f"two runs with the same seed differ: {result.difference}" if result.difference else ""
        return cls(
            scenario.scenario,
            result.verdicts,
            cell=scenario.cell,
            about=scenario.about,
            world=result.task.world,
            sandboxes=header.get("sandboxes", ()),
            seed=scenario.seed,
            sfusion=str(header.get("sfusion", "")),
            events=result.journal.events,
            read_source=partial(scenario_text, scenario),
            wall_seconds=result.wall_seconds,
            runs_code=any(scenario.runs()),
            directory="" if folder is None else str(folder),
            error=result.error or difference,
        )

    @cached_property
    def source(self) -> str:
        return self.read_source()

    @property
    def name(self) -> str:
        """The scenario, with its cell in brackets."""
        return f"{self.scenario}[{self.cell}]" if self.cell else self.scenario

    @property
    def state(self) -> str:
        """The worst state of the verdicts. A run with an error is broken, one without promises unknown."""
        if self.error:
            return BROKEN
        return next((state for state in (BROKEN, UNKNOWN, HELD) if self.in_state(state)), UNKNOWN)

    @property
    def replay(self) -> str:
        """The command that runs it again; empty if nothing was written."""
        if not self.directory:
            return ""
        trust = " --trust" if self.runs_code else ""
        if self.sandboxes:
            targets = " ".join(f"--sandbox {shlex.quote(one)}" for one in self.sandboxes)
            return f"sfusion run {shlex.quote(self.directory + '/scenario.yaml')} {targets}{trust}"
        return f"sfusion replay {shlex.quote(self.directory)}{trust}"

    def in_state(self, state: str) -> list[Verdict]:
        return [one for one in self.verdicts if one.state == state]

    @property
    def score(self) -> str:
        """How many of the promises that apply held."""
        return f"{len(self.in_state(HELD))}/{len(self.verdicts) - len(self.in_state(NOT_APPLICABLE))}"

    @property
    def unplanned(self) -> list[str]:
        """Deaths of the limiter that no kill explains: they come before what they caused."""
        found, killed = [], False
        for event in self.events:
            killed = killed or event["event"] == "killed"
            if event["event"] == "limiter_died":
                if not killed:
                    found.append(
                        f"the limiter died at {float(event['at']):.3g} s, which no event of the scenario asked for"
                    )
                killed = False
        return found

    @property
    def calls(self) -> int:
        """Number of calls made."""
        counts = Counter(event["event"] for event in self.events)
        return counts["called"] or counts["call_started"]

    @property
    def seconds(self) -> float:
        """Duration on the clock of its world."""
        times = [float(event["at"]) for event in self.events]
        return max(times) - min(times) if times else 0.0


def headline(runs: Sequence[RunReport]) -> str:
    """One sentence about all runs."""
    counts = Counter(run.state for run in runs)
    total = counted(len(runs), "run")
    if not runs:
        return "Nothing was run."
    if counts[HELD] == len(runs):
        return f"{total}: every promise held."
    parts = []
    if counts[BROKEN]:
        parts.append(f"{counts[BROKEN]} broke a promise")
    if counts[UNKNOWN]:
        parts.append(f"{counts[UNKNOWN]} could not be judged completely")
    if counts[HELD]:
        parts.append(f"{counts[HELD]} held")
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
