"""Single calls: a client of any shape makes the calls of ``load.each``, and what it does is noted.

World sim plays them here in virtual time; world wall does on a clock that keeps running (see
``clients_wall.py``). Events, horizon and wind-up are those of every scenario.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import re
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    nullcontext,
    suppress,
)
from typing import Any

from sfusion_tools.rollout import RolloutLimits

from ...core.journal import Event, Journal
from ...errors import WorldError
from ..client import Returned, Settings, TrialClient
from ..facts.read import SHORTEST_CUT, read_text
from ..facts.truth import ProgramTruth
from ..programs import packed
from ..scenarios.model import Scenario
from ..single_calls.planned import SingleCall, SingleCallPart, plan_call
from .canary_sandbox import CanarySandboxes
from .client_surroundings import ClientOutput, far_from_greenwich, virtual_clocks
from .recorder import Recorder
from .rollout_bounds import bounds_of
from .run_notes import note_began, note_stuck
from .schedules import ScheduledQueue, make_schedule
from .sim import SimBackend
from .virtual_time import VirtualTimeLoop, run_virtually

GRACE = 5.0
"""Seconds that a cancelled call, and the end of a client, get before they count as stuck. Chosen:
far more than either takes on an idle machine."""
_SETTLED = 2.0
"""Seconds after the last call in which a sandbox learns that nobody waits for its answers any more.
Chosen."""
_FEW = 2
"""Connections that any client may keep. Chosen."""
_PAUSE = 0.001
"""Seconds between a call and the next, so that also in virtual time a request is seen to be of one
of them. Chosen."""
_DEEPEST = 6
"""Levels of attributes that are searched for released instances. Chosen."""
_VARIES = re.compile(r"\b0x[0-9a-f]{6,}\b")
"""Addresses of objects, which differ from run to run."""

MakeClient = Callable[[], TrialClient]


def settings_of(scenario: Scenario, urls: Sequence[str], scale: float = 1.0) -> Settings:
    """Return what a client is configured with: the tool keys of the scenario."""
    deadline = scenario.setting("call_deadline")
    own = scenario.own_config
    stated = own if own is not None else (scenario.tools[0].get("config") or {})  # type: ignore[index]
    compile_timeout = stated.get("compile_timeout")
    return Settings(
        urls=tuple(urls),
        headers=scenario.headers,
        rate_limit=scenario.stated_limit,
        default_timeout=scenario.default_timeout * scale,
        compile_timeout=None if compile_timeout is None else compile_timeout * scale,
        memory_limit_mb=stated.get("memory_limit_mb"),
        deadline=None if deadline is None else deadline * scale,
        scale=scale,
    )


def plan_single_calls(
    scenario: Scenario, takes: frozenset[str], scale: float = 1.0
) -> list[SingleCall]:
    """Return the calls that a client can make, with durations multiplied by ``scale``."""
    assert scenario.load is not None
    planned = []
    for call, part in scenario.load.single_calls.items():
        if part.wanted <= takes:
            made = part if scale == 1.0 else part.scaled(scale)
            planned.append(plan_call(made, call, seed=scenario.seed, scenario=scenario.scenario))
    return planned


class ClientWorker:
    """Makes single calls with a client, and notes what comes back."""

    def __init__(self, name: str, client: TrialClient, recorder: Recorder) -> None:
        self.name = name
        self.alive = True
        self.client = client
        self._recorder = recorder
        self._returned: dict[str, tuple[dict[str, Any], Mapping[str, Any]]] = {}
        """The fields that calls returned: a copy, and the very object."""
        self.kept = 0
        """Characters that the client showed of the first output that it cut."""
        self._under_way: dict[str, asyncio.Future[Returned]] = {}

    async def make(self, planned: SingleCall) -> None:
        """Make a call, cancel it if that is planned, and note how it ended."""
        note = self._recorder.note
        facts = {"call": planned.name, "worker": self.name}
        note("world", "called", **facts, asked=planned.part.written)
        made = asyncio.ensure_future(self._call(planned))
        self._under_way[planned.name] = made
        try:
            cancelled = await self._maybe_cancelled(planned.part, made)
            await asyncio.wait([made])
        except asyncio.CancelledError:  # the run is broken off
            made.cancel()
            await asyncio.wait([made], timeout=GRACE)
            raise
        try:
            returned = made.result()
        except WorldError:
            raise
        except asyncio.CancelledError:
            note("world", "cancelled", **facts, by_caller=cancelled)
            return
        except Exception as error:
            returned = Returned(raised=f"{type(error).__name__}: {error}")
        fields = copy.deepcopy(dict(returned.fields))
        self._returned[planned.name] = fields, returned.fields
        truth = next(iter(planned.programs.values()), (ProgramTruth(),))[0]
        self.kept = self.kept or _kept_of(returned, truth)
        late = {"by_caller": True} if cancelled else {}
        note("world", "returned", **facts, **_returned_facts(returned, fields, truth), **late)

    def cut_off(self, call: str) -> None:
        """End a call that is sent again and again."""
        self._recorder.note("world", "cut_off", call=call)
        if call in self._under_way:
            self._under_way[call].cancel()

    async def _call(self, planned: SingleCall) -> Returned:
        try:
            return await self.client.call(planned.ask)
        except SystemExit as error:
            # Let through, it would end the trial, and its own exit code would be the result.
            return Returned(raised=f"SystemExit: {error}")

    async def _maybe_cancelled(self, part: SingleCallPart, made: asyncio.Future[Returned]) -> bool:
        """Cancel a call when it is time; return whether it had not ended by itself."""
        if part.cancel is None:
            return False
        await asyncio.wait([made], timeout=part.cancel.after)
        for _ in range(part.cancel.steps):
            await asyncio.sleep(0)
        cancelled = not made.done()
        made.cancel()
        return cancelled

    def note_changed_fields(self) -> None:
        """Note fields that are not any more what they were when they were returned."""
        for call, (copied, very) in self._returned.items():
            if copied != dict(very):
                now = plain_data(dict(very))
                self._recorder.note("world", "fields_changed", call=call, fields=now)


def _kept_of(returned: Returned, truth: ProgramTruth) -> int:
    """Return how many characters a text holds of an output that it cuts."""
    if returned.raised is not None or len(truth.stdout) <= SHORTEST_CUT:
        return 0
    return read_text(returned.text, truth).kept


def _returned_facts(
    returned: Returned, fields: Mapping[str, Any], truth: ProgramTruth
) -> dict[str, Any]:
    """Return the keys of ``returned``."""
    text = returned.text if returned.raised is None else returned.raised
    text = _VARIES.sub("0x", text)
    facts: dict[str, Any] = {"outcome": fields.get("outcome"), "text": text, "chars": len(text)}
    facts["pieces"] = packed(text, truth) or [text]
    if returned.raised is not None:
        facts["raised"] = returned.raised.partition(":")[0]
    if fields:
        facts["fields"] = plain_data(fields)
    if returned.reward is not None:
        facts["reward"] = returned.reward
    if returned.altered:
        facts["altered"] = returned.altered
    if returned.paused is not None:
        facts["paused"] = returned.paused
    return facts


def plain_data(value: Any) -> Any:
    """Return what JSON can hold of a value."""
    if isinstance(value, str):
        return _VARIES.sub("0x", value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain_data(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain_data(inner) for inner in value]
    return _VARIES.sub("0x", repr(value))


def _soon(loop: asyncio.AbstractEventLoop, action: Callable[[str], None], call: str) -> None:
    """Do something in a loop, from any thread."""
    with suppress(RuntimeError):  # the scene is over, and its loop closed
        loop.call_soon_threadsafe(action, call)


class ClientBackend(SimBackend):
    """Sandboxes with canaries, and one client in place of a cluster."""

    grace = GRACE
    scale = 1.0
    """By how much the durations of the scenario were shortened already."""
    settling = _SETTLED
    sandboxes: CanarySandboxes

    def __init__(
        self,
        scenario: Scenario,
        recorder: Recorder,
        bounds: RolloutLimits,
        client: TrialClient,
        jump: Callable[[float], None],
    ) -> None:
        super().__init__(scenario, recorder, bounds)
        self._client = client
        self._jump = jump
        self.planned = self._plan()
        self.sandboxes = self._make_sandboxes()

    def jump(self, seconds: float) -> None:
        self._jump(seconds)

    def _plan(self) -> list[SingleCall]:
        return plan_single_calls(self._scenario, self._client.takes)

    def _make_sandboxes(self) -> CanarySandboxes:
        return CanarySandboxes(self._scenario, self.recorder, self.planned)

    async def _start(self, stack: AsyncExitStack) -> None:
        scenario = self._scenario
        stack.push_async_callback(self.sandboxes.stop)
        urls = await self.sandboxes.start()
        self.settings = settings_of(scenario, urls, self.scale)
        note_began(
            self.recorder,
            scenario,
            sandboxes=scenario.sandbox.instances,
            **self._more_about_the_client(),
        )
        await self.sandboxes.begin()
        self.worker = ClientWorker(scenario.cluster.workers[0], self._client, self.recorder)
        self.workers = [self.worker]  # type: ignore[list-item]
        loop = asyncio.get_running_loop()
        self.sandboxes.on_cut_off = lambda call: _soon(loop, self.worker.cut_off, call)
        self.began = True
        try:
            await self._client.begin(self.settings)
        except Exception as error:
            self.began = False
            text = f"begin: {type(error).__name__}: {error}"
            self.recorder.note("world", "client_raised", text=text)
        self.recorder.note("world", "client_began")

    def _logs(self) -> AbstractContextManager[None]:
        return nullcontext()  # all that the client logs is kept, see ``ClientOutput``

    def _more_about_the_client(self) -> dict[str, Any]:
        settings = vars(self.settings) | {"urls": len(self.settings.urls)}
        names = {"headers": sorted(self.settings.headers)}
        stated = {key: value for key, value in settings.items() if value is not None}
        takes = sorted(self._client.takes)
        return {"takes": takes, "settings": stated | names, "horizon": self.horizon}

    async def make_single_calls(self) -> None:
        """Make all calls, each at its time or after the one before it."""
        if not self.began:
            return
        loop = asyncio.get_running_loop()
        began = loop.time()
        tasks: list[asyncio.Task[None]] = []
        for planned in self.planned:
            waits = not planned.part.together and planned.part.among == 1
            before = tasks[-1] if waits and tasks else None
            tasks.append(asyncio.ensure_future(self._make(planned, began, before)))
        try:
            if tasks:
                await asyncio.wait(tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=GRACE)
            raise
        for task in tasks:
            if error := task.exception():
                raise error

    async def _make(
        self, planned: SingleCall, began: float, before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
            await asyncio.sleep(_PAUSE)
        wait = began + planned.part.at - asyncio.get_running_loop().time()
        if wait > 0:
            await asyncio.sleep(wait)
        if planned.part.depends:
            sized = self._sized(planned)
            if sized is None:
                return
            planned = sized
        await self.worker.make(planned)

    def _sized(self, planned: SingleCall) -> SingleCall | None:
        """Return a call whose output is as long as this client can show; None if it cuts nothing,
        or not there."""
        if not self.worker.kept:
            return None
        part = planned.part.with_size(self.worker.kept)
        size = len(plan_text(part, planned.name, self._scenario))
        first = next(iter(self.planned)).programs.values()
        longest = len(next(iter(first))[0].stdout)
        if not SHORTEST_CUT < size < longest:
            return None
        made = plan_call(
            part, planned.name, seed=self._scenario.seed, scenario=self._scenario.scenario
        )
        self.sandboxes.programs.add(made)
        return made

    async def leave(self) -> None:
        """Note what the client leaves behind, and end it."""
        broken_off = not self.recorder.on
        if not broken_off and self.began:
            await self._settle()
        released = {
            planned.ask.instance or planned.name for planned in self.planned if planned.ask.last
        }
        held = sorted(_held(self._client.inside(), released))
        self.worker.note_changed_fields()
        self.recorder.on = True  # what is raised at the end is noted in any case
        try:
            await asyncio.wait_for(self._client.end(), self.grace)
        except Exception as error:
            text = f"end: {type(error).__name__}: {error}"
            self.recorder.note("world", "client_raised", text=text)
        if not broken_off:
            await self.sandboxes.settle()
            facts = {"busy": self.busy, "connections": self.connections}
            tasks = await self._tasks_left()
            slept = getattr(asyncio.get_running_loop(), "slept", [])
            if slept:
                self.recorder.note("world", "loop_blocked", times=len(slept), seconds=sum(slept))
            self.recorder.note("world", "client_left", **facts, instances=held, tasks=tasks)
        self.recorder.on = not broken_off

    busy = connections = 0

    async def _settle(self) -> None:
        """Wait until the sandboxes know that nobody waits any more, and count what is under way."""
        await asyncio.sleep(self.settling * self.scale)
        self.busy = self.sandboxes.busy
        if self.sandboxes.open_connections > _FEW:
            gc.collect()  # sockets that only wait for the collector are not kept
            await asyncio.sleep(self.settling * self.scale)
        self.connections = self.sandboxes.open_connections

    async def _tasks_left(self) -> list[str]:
        await self.sandboxes.stop()
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        return sorted(name for task in left if (name := task_name(task)) != "Connection.start")

    def closing_facts(self) -> dict[str, Any]:
        return {}


def plan_text(part: SingleCallPart, call: str, scenario: Scenario) -> str:
    """Return the output of a call's program."""
    made = plan_call(part, call, seed=scenario.seed, scenario=scenario.scenario)
    return made.programs[call][0].stdout


def task_name(task: asyncio.Task[Any]) -> str:
    return getattr(task.get_coro(), "__qualname__", "") or task.get_name()


def _held(inside: Any, names: set[str], depth: int = 0, seen: set[int] | None = None) -> set[str]:
    """Return which of the names are found in an object: as keys, elements or values of its
    attributes."""
    seen = set() if seen is None else seen
    if isinstance(inside, str):
        return {inside} & names
    plain = isinstance(inside, int | float | bytes | type | types.ModuleType)
    if plain or depth > _DEEPEST or id(inside) in seen:
        return set()
    seen.add(id(inside))
    found = set[str]()
    for part in _parts(inside):
        found |= _held(part, names, depth + 1, seen)
    return found


def _parts(inside: Any) -> list[Any]:
    if isinstance(inside, dict):
        return [*inside.keys(), *inside.values()]
    if isinstance(inside, list | tuple | set | frozenset):
        return list(inside)
    if isinstance(inside, asyncio.AbstractEventLoop | asyncio.Future):
        return []
    return list(vars(inside).values()) if hasattr(inside, "__dict__") else []


def run_in_sim(scenario: Scenario, make_client: MakeClient) -> Journal:
    """Play single calls in virtual time and return the journal."""
    journal = Journal.begin(
        scenario=scenario.scenario, cell=scenario.cell, seed=scenario.seed, world="sim"
    )
    queue = None if scenario.schedule is None else ScheduledQueue(make_schedule(scenario.schedule))
    output = ClientOutput()

    async def play(bounds: RolloutLimits) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        recorder = output.recorder = Recorder(journal, loop.time)
        with virtual_clocks(loop) as jump:
            backend = ClientBackend(scenario, recorder, bounds, make_client(), jump)
            await backend.play(queue)
            programs = any(planned.ask.batch is None for planned in backend.planned)
            if programs and not any(_is_request(event) for event in journal.events):
                recorder.on = True
                recorder.note("world", "unobserved")

    with far_from_greenwich(), output.captured():  # also what is logged when the loop closes
        try:
            run_virtually(play(bounds_of(scenario)), queue)
        except WorldError as error:
            note_stuck(journal, error)
    output.note_printed()
    return journal


def _is_request(event: Event) -> bool:
    return event["source"] == "server" and event["event"] in ("arrived", "other_request")
