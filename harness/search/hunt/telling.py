"""What a hunt shows: a line now and then while it runs, and a page of what was covered, found, and never happened."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, TextIO

import yaml
from markupsafe import Markup

from sfusion.fakes.faults import KINDS
from sfusion.fakes.faults.action import PHASES
from sfusion.harness.lab.promises import PROMISES
from sfusion.harness.reports.html import render_page
from sfusion.harness.reports.line_chart import ChartLine, ChartPoint, LineChart, chart_style
from sfusion.harness.search.hunt.case import scenario_of
from sfusion.harness.search.hunt.hunt import Found, Hunt
from sfusion.harness.terminal import ProgressReporter
from sfusion_tools.outcome import Outcome
from sfusion_tools.wording import counted

_STATES = ("held", "broken", "unknown", "not_applicable")
_EVENTS = (
    "worker_died", "worker_paused", "cut_off", "limiter_died", "limiter_started", "cancelled", "lost", "rollout_ended",
    "rollout_lost", "broken_off",
)  # fmt: skip
_POINTS = 50
_EVERY = 10.0
"""Seconds between two lines of a build log."""


def render_hunt(hunt: Hunt, tools: list[dict[str, Any]] | None, seed: int) -> str:
    """Return the page. It loads nothing, and no script runs on it but its own."""
    tally = hunt.tally
    found = sorted(hunt.found.values(), key=lambda one: (-one.count, str(one.finding)))
    struck = {kind: {phase: tally.strikes[f"{kind} {phase}"] for phase in PHASES} for kind in sorted(KINDS)}
    promises = [(name, [tally.states[f"{name} {state}"] for state in _STATES]) for name in sorted(PROMISES)]
    never = [
        f"fault {kind} in phase {phase}"
        for kind, cls in sorted(KINDS.items())
        for phase in cls.phases
        if not tally.strikes[f"{kind} {phase}"]
    ]
    never += [f"outcome {one.value}" for one in Outcome if not tally.outcomes[one.value]]
    never += [f"event {name}" for name in _EVENTS if not tally.events[name]]
    never += [f"a verdict held on {name}" for name, counts in promises if not counts[0]]
    return render_page(
        "hunt.html.j2",
        headline=f"{counted(len(found), 'finding')} in {counted(tally.cases, 'case')}"
        if found
        else f"Nothing found in {counted(tally.cases, 'case')}",
        tool=tools[0].get("class_name", "") if tools else "SandboxFusionTool",
        facts=[
            ("cases", f"{tally.cases:,}"),
            ("behaviours", f"{len(hunt.covered):,}"),
            ("corpus", f"{len(hunt.corpus):,}"),
            ("findings", str(len(found))),
            ("seed", str(seed)),
        ],
        found=[(one, _yaml(one, tools)) for one in found],
        struck=struck,
        possible={kind: cls.phases for kind, cls in KINDS.items()},
        phases=PHASES,
        promises=promises,
        states=_STATES,
        outcomes=[(one.value, tally.outcomes[one.value]) for one in Outcome],
        never=never,
        chart=Markup(_growth(tally.growth).svg()),
        chart_style=Markup(chart_style()),
    )


def _yaml(one: Found, tools: list[dict[str, Any]] | None) -> str:
    return yaml.safe_dump(scenario_of(one.case, tools).written, sort_keys=False, allow_unicode=True, width=110)


def _growth(growth: Sequence[tuple[int, int]]) -> LineChart:
    points = [(0, 0), *growth[:: max(1, len(growth) // _POINTS)], *growth[-1:]]
    line = ChartLine("", [ChartPoint(covered, note=f"{covered:,} after {cases:,} cases") for cases, covered in points])
    cases = [cases for cases, _ in points]
    return LineChart("Behaviours that were seen", "cases played", [f"{one:,}" for one in cases], [line], cases)


class HuntReporter(ProgressReporter):
    """Shows cases per second, new behaviour and what broke."""

    def __init__(self, out: TextIO, total: int, what: str) -> None:
        super().__init__(out, total, f"hunting ({what})")
        self._began = time.monotonic()
        self._last = float("-inf")
        self._behaviours = 0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def batch_ended(self, hunt: Hunt, played: int, done: int) -> None:
        """Show the state after a batch; ``played`` cases were played by this command, ``done`` is its progress."""
        new, rate = len(hunt.covered) - self._behaviours, played / max(self.seconds, 1e-9)
        findings = counted(len(hunt.found), "finding")
        note = f"{rate:.1f} cases/s  {len(hunt.covered):,} behaviours (+{new})  {findings}"
        line = ""
        if self.seconds - self._last >= _EVERY:
            self._last, line = self.seconds, f"{hunt.tally.cases:>6} cases  {note}"
        self.progress(done, note, line=line)
        self._behaviours = len(hunt.covered)

    def found(self, one: Found) -> None:
        """Show a finding as soon as it is made."""
        self.print(f"found in case {one.case.number}: {one.finding}", "bold red")
