"""World wall: a cluster in one process on a clock that keeps running, for tools that virtual time
cannot play.

Each sandbox is served by a thread of its own over real sockets, so a tool that blocks its event
loop, or calls from threads, is answered all the same. Workers, limiter and kills are those of world
sim. Real sandboxes take the place of the fakes, each behind a proxy; time then runs as it does.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

from sfusion_tools.rollout import RolloutLimits

from ...core.journal import Event, Journal
from ...errors import WorldError
from ...real.targets import RealSandbox
from ..scenarios.model import Scenario
from .lateness import Lateness
from .recorder import Recorder
from .replacing import fast_clock
from .rollout_bounds import bounds_of
from .run_notes import note_stuck
from .sandboxes import FakeSandboxes, RealSandboxes
from .sim import SimBackend

SPEED = 5.0
"""How many seconds of a scenario pass in one of ours, by default."""
_LOOPBACK = "127.0.0.1"
LONGEST_RUN = 300.0
"""Hard cap on the seconds of load, even if the scenario's ``horizon`` is larger."""


class LoopJournal(Journal):
    """Events of other threads are added by the loop that plays."""

    home: tuple[asyncio.AbstractEventLoop, int] | None = None

    def add(self, event: Event) -> None:
        loop, thread = self.home or (None, 0)
        if loop is None or threading.get_ident() == thread:
            super().add(event)
        else:
            loop.call_soon_threadsafe(super().add, event)


class ThreadedSandboxes(FakeSandboxes):
    """The fakes of a scenario, each in a thread of its own."""

    async def start(self) -> list[str]:
        for number, sandbox in enumerate(self._all, 1):
            sandbox.__enter__()
            self._recorder.alias(sandbox.url.removeprefix("http://"), f"sandbox-{number}")
        return [sandbox.url for sandbox in self._all]

    async def settle(self) -> None:
        for sandbox in self._all:
            await asyncio.to_thread(
                sandbox.metrics
            )  # answered by its loop, after everything that was ready there
        await asyncio.sleep(0)

    async def stop(self) -> None:
        for sandbox in self._all:
            await asyncio.to_thread(sandbox.__exit__)

    @property
    def connections(self) -> int:
        return sum(sandbox.ledger.connections for sandbox in self._all)


class ThreadedProxies(RealSandboxes, ThreadedSandboxes):
    """Proxies before real sandboxes, each in a thread of its own."""


class _WallBackend(SimBackend):
    longest_run = LONGEST_RUN
    sandbox_class = ThreadedSandboxes

    @property
    def observed(self) -> bool:
        assert isinstance(self.sandboxes, ThreadedSandboxes)
        return self.sandboxes.connections > 0


class _RealBackend(_WallBackend):
    """With real sandboxes, which their owner has opened."""

    def __init__(
        self,
        scenario: Scenario,
        recorder: Recorder,
        bounds: RolloutLimits,
        real: Sequence[RealSandbox],
    ) -> None:
        self._real = real
        super().__init__(scenario, recorder, bounds)

    def _sandboxes_of_world(self) -> FakeSandboxes:
        return ThreadedProxies(self._scenario, self.recorder, self._real, _LOOPBACK)


def run(scenario: Scenario, *, speed: float = SPEED, real: Sequence[RealSandbox] = ()) -> Journal:
    """Run one cell of a scenario and return its journal.

    ``real`` are sandboxes to use instead of fakes: the scenario's programs are then real code, and
    no clock runs faster.
    """
    if real:
        speed = 1.0
        scenario = scenario.with_real_programs()
    journal = LoopJournal.begin(
        scenario=scenario.scenario, cell=scenario.cell, seed=scenario.seed, world="wall"
    )
    lateness = Lateness()  # with the clock that is not fast
    with fast_clock(speed):
        try:
            bounds = bounds_of(scenario, virtually=False)
            asyncio.run(
                _run(scenario, journal, bounds=bounds, real=real, lateness=lateness, speed=speed)
            )
        except WorldError as error:
            note_stuck(journal, error)
    # Threads report late: an answer may be noted after what its receiver did.
    return Journal(journal.header, sorted(journal.events, key=lambda event: event["at"]))


async def _run(
    scenario: Scenario,
    journal: LoopJournal,
    *,
    bounds: RolloutLimits,
    real: Sequence[RealSandbox],
    lateness: Lateness,
    speed: float,
) -> None:
    journal.home = asyncio.get_running_loop(), threading.get_ident()
    recorder = Recorder(journal, time.monotonic)
    lateness.on_stop = lambda seconds: recorder.note("world", "lagged", seconds=seconds * speed)
    with lateness:
        if real:
            await _RealBackend(scenario, recorder, bounds, real).play()
        else:
            await _WallBackend(scenario, recorder, bounds).play()
