"""Single calls on the wall clock: for clients with threads, blocking calls or processes of their
own.

Sandboxes listen on real sockets, each in a thread of its own, so a client that blocks is answered
all the same. In this process the clock runs faster (``fast_clock``). Another process keeps its own
time, so its scenarios are shortened. Calls that do not depend on each other are divided among
several clients.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sfusion_tools.rollout import RolloutLimits
from sfusion_tools.wording import counted

from ...core.journal import Journal
from ...errors import WorldError
from ..client import Returned, Shape, TrialAsk, TrialClient
from ..scenarios.model import Scenario
from ..single_calls.planned import SingleCall
from .canary_sandbox import CanarySandboxes
from .client_surroundings import ClientOutput, far_from_greenwich, jumping
from .clients import ClientBackend, plan_single_calls, task_name
from .lateness import Lateness
from .recorder import Recorder
from .replacing import fast_clock
from .rollout_bounds import bounds_of
from .run_notes import note_stuck
from .wall import LoopJournal, ThreadedSandboxes
from .wall_journals import journal_of_part, merged, pace_of, without_left_behind
from .wall_plan import disturbed_singly, divided, slow_last, with_short_gaps

SPEED = 10.0
"""How many seconds of a scenario pass in one of ours, where the clock of the client can be made
faster. Chosen: a trial then takes less than a minute."""
CHILD_SCALE = 0.1
"""By how much scenarios for another process are shortened. Chosen: as much as ``SPEED``."""
LONGEST = 46.0
"""Real seconds after which no further scenario begins. Chosen: a trial takes at most a minute."""
_JITTER = 0.05
"""Real seconds by which what happens in threads and processes may be late, even if the machine is
idle. Chosen."""
_PATIENCE = 15.0
"""Real seconds for a call; one that takes longer is left behind. A sandbox stops programs after
10 s."""
_LAST = 8.0
"""Real seconds that the last scenario gets in any case. Chosen."""
_AT_ONCE = 24
"""How many clients there are at a time. Chosen."""


class ThreadedCanarySandboxes(ThreadedSandboxes, CanarySandboxes):
    """The sandboxes of single calls, each in a thread of its own."""


class _WallBackend(ClientBackend):
    """A part of a scenario: some of its calls, with a client and sandboxes of their own."""

    def __init__(
        self,
        scenario: Scenario,
        recorder: Recorder,
        bounds: RolloutLimits,
        client: TrialClient,
        jump: Callable[[float], None],
        *,
        planned: list[SingleCall],
        scale: float,
        grace: float,
        late: Lateness,
        speed: float,
    ) -> None:
        self._given = planned
        super().__init__(scenario, recorder, bounds, client, jump)
        self.scale = scale
        self.grace = grace
        self._late = late
        self._speed = speed

    def _plan(self) -> list[SingleCall]:
        return self._given

    def _make_sandboxes(self) -> CanarySandboxes:
        return ThreadedCanarySandboxes(self._scenario, self.recorder, self.planned)

    async def _settle(self) -> None:
        await super()._settle()
        if self.busy:
            # A sandbox may be late to note that it is done.
            await asyncio.sleep(4 * (_JITTER + self._late.worst) * self._speed)
            self.busy = min(self.busy, self.sandboxes.busy)

    async def _tasks_left(self) -> list[str]:
        return []  # tasks of all parts are counted together


def run_on_wall(scenario: Scenario, shape: Shape) -> Journal:
    """Play the single calls of one scenario on the wall clock and return the journal."""
    trial = WallTrial(shape)
    found = list(trial.play([scenario]))
    if not found:
        raise WorldError(f"{scenario.title}: {trial.left_out.get(scenario.scenario)}")
    return found[0][1]


@dataclass
class _Part:
    """Some calls of a scenario, which one client makes."""

    scenario: Scenario
    planned: list[SingleCall]
    journal: LoopJournal
    horizon: float
    unmarked: bool = False
    """The client sends programs of its own."""
    output: ClientOutput = field(default_factory=ClientOutput)


class WallTrial:
    """Plays scenarios with one kind of client; each has sandboxes and clients of its own."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._child = shape.child
        self._speed = 1.0 if shape.child else SPEED
        self._scale = CHILD_SCALE if shape.child else 1.0
        self._takes = shape.takes
        self._late = Lateness()
        self.left_out: dict[str, str] = {}
        """Scenarios that were not played and calls that were left behind, with the reason."""

    def play(
        self,
        scenarios: Sequence[Scenario],
        tell: Callable[[str], None] = lambda step: None,
    ) -> list[tuple[Scenario, Journal]]:
        """Play all scenarios that the client can take, until the time is up.

        Those of another process are played at once. ``tell`` is called before, with what is played.
        """
        played: list[tuple[Scenario, Journal]] = []
        began = time.monotonic()
        with self._late, far_from_greenwich():
            batches = [scenarios] if self._child else [[scenario] for scenario in scenarios]
            for batch in batches:
                chosen = []
                for scenario in batch:
                    passed = time.monotonic() - began
                    why_not = self._not_for(scenario, passed)
                    if why_not:
                        self.left_out[scenario.scenario] = why_not
                        continue
                    if not self._child:
                        tell(scenario.scenario)
                    seconds_left = LONGEST + _LAST - passed
                    chosen.append((scenario, seconds_left))
                if self._child:
                    tell(
                        f"{counted(len(chosen), 'scenario')} at once, {LONGEST + _LAST:g} s at most"
                    )
                played += self._play_at_once(chosen)
        # A request takes several threads: this one's, the sandbox's, and often one of the client.
        late = (_JITTER + 2 * self._late.worst) * self._speed
        tolerance = max([late, *(pace_of(journal) for _, journal in played)])
        for _, journal in played:
            for event in journal.events:
                if event["event"] == "began":
                    event["tolerance"] = round(tolerance, 6)
        return played

    def _not_for(self, scenario: Scenario, passed: float) -> str:
        """Return why a scenario is not played after so many real seconds; empty if it is."""
        assert scenario.load is not None
        if lacking := set(scenario.load.needs) - self._takes:
            return f"needs {', '.join(sorted(lacking))}"
        faulty = any(part.fault for part in scenario.load.each) or bool(scenario.events)
        if not self._takes and not faulty:
            return "the command makes calls of its own"
        if self._child and any(event.kind == "clock_jump" for event in scenario.events):
            return "the clock of another process cannot be set"
        if passed > LONGEST:
            return f"the trial had taken {LONGEST:g} s; -k with its name plays it"
        return ""

    def _play_at_once(self, chosen: list[tuple[Scenario, float]]) -> list[tuple[Scenario, Journal]]:
        """Play scenarios beside each other; the numbers are the real seconds that are left."""
        if not chosen:
            return []
        with_parts: list[tuple[Scenario, list[_Part]]] = []
        all_parts: list[_Part] = []
        for scenario, left in chosen:
            parts = self._parts(scenario, left)
            with_parts.append((scenario, parts))
            all_parts += parts
        output = all_parts[0].output
        with output.captured(), fast_clock(self._speed):
            asyncio.run(self._together(all_parts))
            output.note_printed()
        return [(scenario, self._joined(parts)) for scenario, parts in with_parts]

    def _parts(self, scenario: Scenario, left: float) -> list[_Part]:
        """Divide the calls of a scenario among clients."""
        planned = slow_last(plan_single_calls(scenario, self._takes, self._scale), self._scale)
        planned, events = with_short_gaps(scenario, planned, self._scale)
        changed = scenario.changed(events=events, schedule=None)
        horizon = min(scenario.horizon * self._scale, left * self._speed)
        if not self._takes:
            groups = disturbed_singly(planned, has_events=bool(events))
        elif self._shape.divide and not events and scenario.schedule is None:
            groups = divided(planned)
        else:
            groups = [planned]
        return [
            _Part(changed, group, _journal_of(scenario), horizon, unmarked=not self._takes)
            for group in groups
        ]

    async def _together(self, parts: list[_Part]) -> None:
        gate = asyncio.Semaphore(_AT_ONCE)
        zero = time.monotonic()
        with jumping(time.time) as jump:
            await asyncio.gather(*(self._play(part, gate, jump, zero) for part in parts))
        await asyncio.sleep((_JITTER + 4 * self._late.worst) * self._speed)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        names = sorted(task_name(task) for task in left)
        for event in parts[0].journal.events:
            if event["event"] == "client_left":
                event["tasks"] = names

    async def _play(
        self, part: _Part, gate: asyncio.Semaphore, jump: Callable[[float], None], zero: float
    ) -> None:
        part.journal.home = asyncio.get_running_loop(), threading.get_ident()
        client = self._shape.make()
        patience = _PATIENCE * self._speed
        impatient = _Impatient(
            client,
            part.planned,
            seconds=patience,
            jitter=_JITTER * self._speed,
            late=self._late,
            speed=self._speed,
        )
        async with gate:
            recorder = part.output.recorder = Recorder(part.journal, time.monotonic, zero)
            impatient.recorder = recorder
            backend = _WallBackend(
                part.scenario,
                recorder,
                bounds_of(part.scenario, virtually=False),
                impatient,
                jump,
                planned=part.planned,
                scale=self._scale,
                grace=_LAST * self._speed,
                late=self._late,
                speed=self._speed,
            )
            backend.horizon = part.horizon
            try:
                await backend.play()
            except WorldError as error:
                note_stuck(part.journal, error)
        if printed := getattr(client, "printed", ""):
            recorder.on = True
            recorder.note("world", "printed", text=printed)

    def _joined(self, parts: list[_Part]) -> Journal:
        """Join the journals of all parts, without the calls that were left behind."""
        journals = []
        for part in parts:
            name = part.planned[0].name if part.unmarked else None
            journal, why_forgotten = without_left_behind(
                journal_of_part(part.journal, name),
                _PATIENCE * self._speed,
                may_be_stuck=not self._child,
            )
            self.left_out |= why_forgotten
            journals.append(journal)
        self._note_unmade(parts)
        return journals[0] if len(journals) == 1 else merged(journals)

    def _note_unmade(self, parts: list[_Part]) -> None:
        """Note how many calls of a scenario were not made because the time was over."""
        planned = [call.name for part in parts for call in part.planned if not call.part.depends]
        made = {
            event.get("call")
            for part in parts
            for event in part.journal.events
            if event["event"] == "called"
        }
        unmade = len(planned) - len(made.intersection(planned))
        if unmade:
            name = parts[0].scenario.scenario
            self.left_out[name] = f"{unmade} of {len(planned)} calls, as the time was over"


def _journal_of(scenario: Scenario) -> LoopJournal:
    return LoopJournal.begin(
        scenario=scenario.scenario, cell=scenario.cell, seed=scenario.seed, world="wall"
    )


class _Impatient:
    """A client whose calls are left behind after some time: one that never ends must not keep the
    others waiting."""

    recorder: Recorder

    def __init__(
        self,
        client: TrialClient,
        planned: list[SingleCall],
        *,
        seconds: float,
        jitter: float,
        late: Lateness,
        speed: float,
    ) -> None:
        self.takes = client.takes
        self._client = client
        self._late = late
        self._speed = speed
        counts = Counter(call.ask.code for call in planned)
        self._again = {code for code, count in counts.items() if count > 1}
        self._seconds = seconds
        self._jitter = jitter
        self.begin = client.begin
        self.end = client.end
        self.inside = client.inside

    async def call(self, ask: TrialAsk) -> Returned:
        stops = self._late.stops
        made: asyncio.Future[Returned] = asyncio.ensure_future(self._client.call(ask))
        try:
            await asyncio.wait([made], timeout=self._seconds)
        finally:
            if not made.done():
                made.cancel()
            if lag := self._late.worst_since(stops):
                seconds = lag * self._speed
                self.recorder.note("world", "lagged", call=ask.call, seconds=seconds)
        if not made.done():
            raise asyncio.CancelledError
        if ask.code in self._again:
            # By time only its requests are told from those of the next call.
            await asyncio.sleep(2 * self._jitter)
        return made.result()
