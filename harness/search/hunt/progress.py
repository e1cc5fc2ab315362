"""What a hunt shows while it runs: a moving line on a terminal, a line now and then in a build log."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TextIO

from sfusion.harness.search.hunt.hunt import Found, Hunt
from sfusion.harness.terminal import ProgressReporter
from sfusion_tools.wording import counted

_EVERY = 10.0
"""Seconds between two lines of a build log."""


class HuntReporter(ProgressReporter):
    """Shows cases per second, new behaviour, what broke, and which promise is slowest to judge."""

    def __init__(self, out: TextIO, total: int, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(out, total, f"hunting ({what})")
        self._clock = clock
        self._began = clock()
        self._last = float("-inf")
        self._slowest: dict[str, float] = {}
        self._behaviours = 0

    @property
    def seconds(self) -> float:
        return self._clock() - self._began

    def batch_ended(self, hunt: Hunt, played: int, done: int, slowest: Sequence[tuple[str, float]]) -> None:
        """Show the state after a batch; ``played`` cases were played by this command, ``done`` is its progress."""
        for promise, seconds in slowest:
            self._slowest[promise] = max(seconds, self._slowest.get(promise, 0.0))
        note = self._note(hunt, played)
        now = self._clock()
        line = ""
        if now - self._last >= _EVERY:
            self._last, line = now, f"{hunt.tally.cases:>6} cases  {note}"
        self.progress(done, note, line=line)
        self._behaviours = len(hunt.covered)

    def _note(self, hunt: Hunt, played: int) -> str:
        promise, seconds = max(self._slowest.items(), key=lambda item: item[1], default=("-", 0.0))
        new = len(hunt.covered) - self._behaviours
        return (
            f"{played / max(self.seconds, 1e-9):.1f} cases/s  {len(hunt.covered):,} behaviours (+{new})  "
            f"{counted(len(hunt.found), 'finding')}  slowest promise {promise} {seconds * 1000:.0f} ms"
        )

    def found(self, one: Found) -> None:
        """Show a finding as soon as it is made."""
        self.print(f"found in case {one.case.number}: {one.finding}", "bold red")
