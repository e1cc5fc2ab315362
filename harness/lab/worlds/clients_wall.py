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
from dataclasses import dataclass, field, replace
from typing import Any, Self

from sfusion_tools.rollout import RolloutLimits

from ...core.journal import Event, Journal
from ...errors import WorldError
from ..client import WARM_UP, Returned, Shape, TrialAsk, TrialClient
from ..scenarios.model import Scenario
from ..single_calls.calls import CallFacts, SuiteFacts
from ..single_calls.planned import TEST, SingleCall
from .canary_sandbox import CanarySandboxes
from .clients import ClientBackend, ClientOutput, far_from_greenwich, jumping, plan_calls, task_name
from .play import note_stuck
from .recorder import Recorder
from .replacing import fast_clock
from .wall import LoopJournal, ThreadedSandboxes
from .worker_rollouts import bounds_of

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
_LOOK = 0.01
"""Real seconds between two looks at how late threads are. Chosen."""
_PATIENCE = 15.0
"""Real seconds for a call; one that takes longer is left behind. A sandbox stops programs after
10 s."""
_LAST = 8.0
"""Real seconds that the last scenario gets in any case. Chosen."""
_LONGEST_GAP = 60.0
"""Seconds of a scenario in which nothing is planned: longer ones are shortened. Chosen."""
_CLIENTS = 10
"""How many clients share the calls of a scenario. Chosen."""
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
        late: _Lateness,
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
        self._late = _Lateness()
        self.left_out: dict[str, str] = {}
        """Scenarios that were not played and calls that were left behind, with the reason."""

    def play(self, scenarios: Sequence[Scenario]) -> list[tuple[Scenario, Journal]]:
        """Play all scenarios that the client can take, until the time is up; those of another
        process at once."""
        played: list[tuple[Scenario, Journal]] = []
        began = time.monotonic()
        with self._late, far_from_greenwich():
            for batch in [scenarios] if self._child else [[one] for one in scenarios]:
                chosen = []
                for scenario in batch:
                    passed = time.monotonic() - began
                    if why := self._not_for(scenario, passed):
                        self.left_out[scenario.scenario] = why
                    else:
                        chosen.append((scenario, LONGEST + _LAST - passed))
                played += self._scenes(chosen)
        # A request takes several threads: this one's, the sandbox's, and often one of the client.
        late = (_JITTER + 2 * self._late.worst) * self._speed
        tolerance = max(late, *(_pace(journal) for _, journal in played), 0.0)
        for _, journal in played:
            for event in journal.events:
                if event["event"] == "began":
                    event["tolerance"] = round(tolerance, 6)
        return played

    def _not_for(self, scenario: Scenario, passed: float) -> str:
        assert scenario.load is not None
        if lacking := set(scenario.load.needs) - self._takes:
            return ", ".join(sorted(lacking))
        faulty = any(part.fault for part in scenario.load.each) or bool(scenario.events)
        if not self._takes and not faulty:
            return "the command makes calls of its own"
        if self._child and any(event.kind == "clock_jump" for event in scenario.events):
            return "the clock of another process cannot be set"
        return f"the trial had taken {LONGEST:g} s" if passed > LONGEST else ""

    def _scenes(self, chosen: list[tuple[Scenario, float]]) -> list[tuple[Scenario, Journal]]:
        if not chosen:
            return []
        groups = [self._parts(scenario, left) for scenario, left in chosen]
        output = groups[0][0].output
        with output.captured(), fast_clock(self._speed):
            asyncio.run(self._together([part for group in groups for part in group]))
            output.note_printed()
        return [
            (scenario, self._joined(scenario, group))
            for (scenario, _), group in zip(chosen, groups, strict=True)
        ]

    def _parts(self, scenario: Scenario, left: float) -> list[_Part]:
        """Divide the calls of a scenario among clients."""
        planned = _slow_last(plan_calls(scenario, self._takes, self._scale), self._scale)
        planned, events = _closer(scenario, planned, _LONGEST_GAP * self._scale, self._scale)
        changed = scenario.changed(events=events, schedule=None)
        horizon = min(scenario.horizon * self._scale, left * self._speed)
        if not self._takes:
            groups = _single(planned, bool(events))
        elif self._shape.divide:
            groups = _groups(planned, bool(events), scenario.schedule is not None)
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
        impatient = _Impatient(client, part.planned, patience, _JITTER * self._speed)
        async with gate:
            recorder = part.output.recorder = Recorder(part.journal, time.monotonic, zero)
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

    # -- joining --

    def _joined(self, scenario: Scenario, parts: list[_Part]) -> Journal:
        """Join the journals of all parts, without the calls that were left behind."""
        journals = []
        for part in parts:
            events = _without_warm_up(sorted(part.journal.events, key=lambda one: one["at"]))
            if part.unmarked:
                events = _marked(events, part.planned[0].name)
            journal = Journal(part.journal.header, events)
            journals.append(self._without_left_behind(part, journal))
        if len(journals) == 1:
            return journals[0]
        return _merged(journals)

    def _without_left_behind(self, part: _Part, journal: Journal) -> Journal:
        """Let calls that were left behind count as never ended if their only attempt hangs, or if
        there was none. The others are forgotten.

        Of another process none counts: it keeps its own time, and may have been about to give up.
        """
        facts = SuiteFacts([journal])
        run = facts.runs[0]
        late = [call for call in facts if call.returned is None and not call.cancelled]
        patience = _PATIENCE * self._speed
        forgotten = set[str]()
        unended = set[str]()
        horizon = None
        for call in late:
            in_time = call.ended_at is not None and call.ended_at - call.asked_at >= patience
            if not self._child and in_time and _is_stuck(call):
                unended.add(call.call)
                horizon = patience
                continue
            forgotten.add(call.call)
            self.left_out[call.name] = _why_forgotten(call, patience if in_time else None)
        if not late and not run.broken_off:
            return journal
        events = [
            event
            for event in journal.events
            if _is_kept(event, forgotten, unended) and event["event"] != "broken_off"
        ]
        events = [_nothing_left(event, horizon) for event in events]
        return Journal(journal.header, events)


def _journal_of(scenario: Scenario) -> LoopJournal:
    return LoopJournal.begin(
        scenario=scenario.scenario, cell=scenario.cell, seed=scenario.seed, world="wall"
    )


def _is_kept(event: Event, forgotten: set[str], unended: set[str]) -> bool:
    call = str(event.get("call", "")).partition(TEST)[0]
    if call in forgotten:
        return False
    return not (call in unended and event["event"] in ("returned", "cancelled"))


def _nothing_left(event: Event, horizon: float | None) -> Event:
    """Return what a run as a whole says where calls were left behind: nothing of what is left."""
    if event["event"] == "client_left":
        return {**event, "busy": 0, "connections": 0}
    if event["event"] == "began" and horizon is not None:
        return {**event, "horizon": horizon}
    return event


def _is_stuck(call: CallFacts) -> bool:
    """Does a call hang at its only attempt, or wait for a permit that nobody holds?"""
    attempts = call.requests
    if not attempts and not call.run.has_events:
        return all(
            request.ended is not None
            and request.ended + (request.retry_after or 0.0) <= call.asked_at
            for request in call.run.requests
        )
    once = len({request.test for request in attempts}) == len(attempts)
    return once and any("hang" in request.faults for request in attempts)


def _why_forgotten(call: CallFacts, patience: float | None) -> str:
    after = "when the time of the trial was over" if patience is None else f"after {patience:g} s"
    why = ""
    if call.requests and "drip" in call.requests[-1].faults:
        why = "; its answer trickles, and a timeout between two bytes never ends that"
    return f"had not ended {after}, and was left behind{why}"


def _without_warm_up(events: list[Event]) -> list[Event]:
    return [event for event in events if event.get("call") != WARM_UP]


def _marked(events: list[Event], call: str) -> list[Event]:
    """Follow the first program that a command sends, whatever it is, as that of the call."""
    first: Any = None
    wanted = set[tuple[Any, Any]]()
    kept = []
    for event in events:
        if event["source"] != "server" or "attempt" not in event:
            kept.append(event)
            continue
        if event["event"] == "arrived":
            body = event.get("fields") or event.get("body")
            first = body if first is None else first
            if body == first:
                wanted.add((event["call"], event["attempt"]))
        if (event["call"], event["attempt"]) in wanted:
            kept.append({**event, "call": call})
    return kept


def _merged(journals: list[Journal]) -> Journal:
    """Return one journal of several clients that shared the calls of a scenario."""
    once = {"began": "", "client_began": "", "ended": "", "client_left": ""}
    events: list[Event] = []
    left: list[Event] = []
    for number, journal in enumerate(journals):
        for event in journal.events:
            if event["event"] == "client_left":
                left.append(event)
            elif event["event"] not in once or (not number and event["event"] != "ended"):
                events.append(event)
    events.sort(key=lambda event: float(event["at"]))
    began = next(number for number, event in enumerate(events) if event["event"] == "began")
    events.insert(0, {**events.pop(began), "divided": True})
    at = max(journal.last_time for journal in journals)
    if left:
        events.append({**_left_by_all(left), "at": at})
    events.append({"at": at, "source": "world", "event": "ended"})
    return Journal(journals[0].header, events)


def _left_by_all(left: list[Event]) -> Event:
    return {
        **left[0],
        "busy": sum(event["busy"] for event in left),
        "connections": max(event["connections"] for event in left),
        "instances": [name for event in left for name in event["instances"]],
        "tasks": [name for event in left for name in event["tasks"]],
    }


def _pace(journal: Journal) -> float:
    """Return the longest time that a plain call spent outside the sandbox: what this client takes
    on this machine."""
    if journal.header["scenario"] not in ("judge-programs", "judge-idle"):
        return 0.0
    facts = SuiteFacts([journal])
    sent = Counter(request.mark for request in facts.runs[0].requests)
    found = [0.0]
    for call in facts:
        for request in call.requests:
            plain = not request.faults and sent[request.mark] == 1
            if plain and request.ended is not None and call.returned and call.ended_at is not None:
                handled = request.ended - request.at
                found.append(call.ended_at - call.asked_at - handled)
    return max(found)


class _Lateness(threading.Thread):
    """Measures by how much a thread comes too late: little on an idle machine, much on a busy
    one."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.worst = 0.0
        # The true ones: a fast clock comes later.
        self._clock = time.monotonic
        self._sleep = time.sleep
        self._ended = False

    def run(self) -> None:
        while not self._ended:
            began = self._clock()
            self._sleep(_LOOK)
            self.worst = max(self.worst, self._clock() - began - _LOOK)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self.join()


class _Impatient:
    """A client whose calls are left behind after some time: one that never ends must not keep the
    others waiting."""

    def __init__(
        self, client: TrialClient, planned: list[SingleCall], seconds: float, jitter: float
    ) -> None:
        self.takes = client.takes
        self._client = client
        counts = Counter(call.ask.code for call in planned)
        self._again = {code for code, count in counts.items() if count > 1}
        self._seconds = seconds
        self._jitter = jitter
        self.begin = client.begin
        self.end = client.end
        self.inside = client.inside

    async def call(self, ask: TrialAsk) -> Returned:
        made: asyncio.Future[Returned] = asyncio.ensure_future(self._client.call(ask))
        try:
            await asyncio.wait([made], timeout=self._seconds)
        finally:
            if not made.done():
                made.cancel()
        if not made.done():
            raise asyncio.CancelledError
        if ask.code in self._again:
            # By time only its requests are told from those of the next call.
            await asyncio.sleep(2 * self._jitter)
        return made.result()


# -- what is planned otherwise on a wall clock --


def _slow_last(planned: list[SingleCall], scale: float) -> list[SingleCall]:
    """Let calls that may take for ever begin at once, beside the others, so that their times do not
    add up."""
    slow = [call for call in planned if any(_is_slow(rule["what"], scale) for rule in call.faults)]
    names = {call.name for call in slow}
    others = [call for call in planned if call.name not in names]
    return [*others, *(_changed(call, together=True) for call in slow)]


def _changed(call: SingleCall, **changes: Any) -> SingleCall:
    return replace(call, part=call.part.model_copy(update=changes))


def _is_slow(what: Any, scale: float) -> bool:
    if not isinstance(what, dict):
        return bool(what == "hang")
    drips = bool(what.get("drip", {}).get("bytes") == 1)
    return drips or float(what.get("retry_after", 0.0)) >= _LONGEST_GAP * scale


def _closer(
    scenario: Scenario, planned: list[SingleCall], longest: float, scale: float
) -> tuple[list[SingleCall], list[dict[str, Any]]]:
    """Shorten the times in which nothing is planned; return the calls and the events."""
    written = [dict(event) for event in scenario.plain.get("events", [])]
    spans = [_span(event, scale) for event in written]
    times = sorted(
        {0.0, *(call.part.at for call in planned), *(at for span in spans for at in span)}
    )
    moved: dict[float, float] = {}
    shift = 0.0
    for before, at in zip([0.0, *times], times, strict=False):
        shift += max(0.0, at - before - longest)
        moved[at] = at - shift
    for event, span in zip(written, spans, strict=True):
        event["at"] = moved[span[0]]
        if "seconds" in event:
            event["seconds"] = moved[span[1]] - moved[span[0]]
    return [_changed(call, at=moved[call.part.at]) for call in planned], written


def _span(event: dict[str, Any], scale: float) -> tuple[float, float]:
    """Return when an event begins and ends."""
    at = float(event["at"]) * scale
    return at, at + float(event.get("seconds") or 0.0) * scale


def _groups(planned: list[SingleCall], has_events: bool, shuffled: bool) -> list[list[SingleCall]]:
    """Divide calls that are made one after the other, at no given time; those of one program stay
    together."""
    timed = any(call.part.at or call.part.cancel is not None for call in planned)
    if has_events or shuffled or timed or any(call.part.depends for call in planned):
        return [planned]
    alone = [call for call in planned if call.part.together]
    others = [call for call in planned if not call.part.together]
    kinds = list(dict.fromkeys(_kind(call) for call in others))
    group = {kind: number % _CLIENTS for number, kind in enumerate(kinds)}
    divided: list[list[SingleCall]] = [[] for _ in range(_CLIENTS)]
    for call in others:
        divided[group[_kind(call)]].append(call)
    return [calls for calls in (*divided, *([call] for call in alone)) if calls]


def _kind(call: SingleCall) -> str:
    return call.ask.instance or call.ask.code


def _single(planned: list[SingleCall], has_events: bool) -> list[list[SingleCall]]:
    """Divide into one part per call that meets a fault or an event, whatever the programs that are
    sent in it."""
    singles = []
    for call in planned:
        rules = tuple(
            {key: value for key, value in rule.items() if key != "call"} for rule in call.faults
        )
        if rules or has_events:
            programs = {"": tuple(next(iter(call.programs.values()), ()))}
            singles.append([replace(call, faults=rules, programs=programs)])
    return singles
