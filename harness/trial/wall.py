"""The stage on the wall clock: for clients with threads, blocking calls or processes of their own.

Sandboxes listen on real sockets, each in a thread of its own, so a client that blocks is answered
all the same. In this process the clock runs faster (``fast_clock``). Another process keeps its own
time, so its plan is shortened. Calls that do not depend on each other are divided among several
clients.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Self

from ...fakes.sandbox.program import mark_of
from ..lab.worlds.replacing import fast_clock
from .client import Settings, Told, TrialAsk, TrialClient
from .plan import TEST, Scene, TrialPlan
from .playing import captured, jumping, play_scene
from .record import PlayedScene, Record
from .sandbox import TrialSandbox
from .shapes.process import WARM_UP

SPEED = 10.0
"""How many seconds of a plan pass in one of ours, where the clock of the client can be made
faster."""
CHILD_SCALE = 0.1
"""By how much the plan for another process is shortened."""
LONGEST = 46.0
"""Real seconds after which no further scene begins."""
_JITTER = 0.05
"""Real seconds by which what happens in threads and processes may be late, even if the machine
is idle."""
_LOOK = 0.01
"""Real seconds between two looks at how late threads are."""
_PATIENCE = 15.0
"""Real seconds for a call; one that takes longer is left behind. A sandbox stops programs after
10 s."""
_LAST = 8.0
"""Real seconds that the last scene gets in any case."""
_LONGEST_GAP = 60.0
"""Seconds of the plan in which nothing is planned: longer ones are shortened."""
_CLIENTS = 10
"""How many clients share the calls of a scene."""
_AT_ONCE = 24


class WallStage:
    """Plays a plan; each scene has sandboxes and clients of its own.

    ``child``: the client is another process. ``divide``: several clients may be there at a time.
    """

    def __init__(
        self,
        plan: TrialPlan,
        make_client: Callable[[], TrialClient],
        *,
        child: bool = False,
        divide: bool = False,
    ) -> None:
        self._plan = plan
        self._make = make_client
        self._child = child
        self._divide = divide
        self._speed = 1.0 if child else SPEED
        self._takes = frozenset(make_client().takes)
        self._forgotten: dict[str, str] = {}
        self._forgotten_marks = set[str | None]()
        self._late = _Lateness()

    def play(self) -> Record:
        """Play all scenes that the client can take, until the time is up; those of another
        process at once."""
        record = Record("wall", self._takes)
        with self._late:
            self._play_into(record)
        # A request takes several threads: this one's, the sandbox's, and often one of the client.
        record.tolerance = max((_JITTER + 2 * self._late.worst) * self._speed, _pace(record))
        record.left_out |= self._forgotten
        for played in record.scenes.values():  # a call that was left behind may have gone on
            played.requests[:] = [
                sent for sent in played.requests if sent.mark not in self._forgotten_marks
            ]
        return record

    def _play_into(self, record: Record) -> None:
        began, scale = time.monotonic(), self._plan.scale
        for batch in _batches(self._plan, at_once=self._child):
            chosen = []
            for planned in batch:
                scene = (
                    planned
                    if isinstance(planned, Scene)
                    else planned(record)
                    if self._takes
                    else None
                )
                if scene is None:
                    continue
                if why := self._not_for(scene, time.monotonic() - began):
                    record.left_out[scene.name] = why
                else:
                    scene = _closer(
                        _slow_last(scene.fitting(self._takes), scale), _LONGEST_GAP * scale
                    )
                    left = LONGEST + _LAST - (time.monotonic() - began)
                    chosen.append(replace(scene, horizon=min(scene.horizon, left * self._speed)))
            record.scenes |= {whole.scene.name: whole for whole in self._scenes(chosen)}

    def _not_for(self, scene: Scene, passed: float) -> str:
        if lacking := scene.needs - self._takes:
            return ", ".join(sorted(lacking))
        if not self._takes and not (scene.faults or scene.events):
            return "the command makes calls of its own"
        if self._child and any(event.kind == "clock_jump" for event in scene.events):
            return "the clock of another process cannot be set"
        return f"the trial had taken {LONGEST:g} s" if passed > LONGEST else ""

    def _scenes(self, scenes: list[Scene]) -> list[PlayedScene]:
        if not scenes:
            return []
        divide = _single if not self._takes else _groups if self._divide else lambda scene: [scene]
        parts = [[PlayedScene(one, Settings(())) for one in divide(scene)] for scene in scenes]
        wholes = [PlayedScene(scene, Settings(())) for scene in scenes]
        with captured(wholes[0]), fast_clock(self._speed), ExitStack() as stack:
            asyncio.run(self._together([part for group in parts for part in group], stack))
        for whole, group in zip(wholes, parts, strict=True):
            _join(whole, group)
        return wholes

    async def _together(self, parts: list[PlayedScene], stack: ExitStack) -> None:
        gate = asyncio.Semaphore(_AT_ONCE)
        with jumping(time.time) as jump:
            await asyncio.gather(*(self._part(part, gate, jump, stack) for part in parts))
        await asyncio.sleep((_JITTER + 4 * self._late.worst) * self._speed)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        parts[0].tasks_left = tuple(
            sorted(getattr(task.get_coro(), "__qualname__", "") for task in left)
        )

    async def _part(
        self,
        part: PlayedScene,
        gate: asyncio.Semaphore,
        jump: Callable[[float], None],
        stack: ExitStack,
    ) -> None:
        scene, plan, kept = part.scene, self._plan, (part.requests, part.other_requests)
        client = self._make()
        async with gate:
            made = [
                TrialSandbox(number, scene, plan.seed, *kept) for number in range(scene.sandboxes)
            ]
            sandboxes = [stack.enter_context(sandbox) for sandbox in made]
            urls = tuple(sandbox.url for sandbox in sandboxes)
            part.settings = Settings(urls, scale=plan.scale, **{**plan.settings, **scene.settings})
            patience, jitter = _PATIENCE * self._speed, _JITTER * self._speed
            impatient = _Impatient(client, scene, patience, jitter)
            await play_scene(
                scene,
                impatient,
                part.settings,
                sandboxes,
                part,
                jump=jump,
                grace=_LAST * self._speed,
            )
            if part.busy:
                # A sandbox may be late to note that it is done.
                await asyncio.sleep(4 * (jitter + self._late.worst * self._speed))
                part.busy = min(part.busy, sum(sandbox.ledger.in_flight for sandbox in sandboxes))
        self._leave_behind(part, patience)
        part.requests[:] = [sent for sent in part.requests if sent.mark != WARM_UP]
        part.printed += getattr(client, "printed", "")

    def _leave_behind(self, part: PlayedScene, patience: float) -> None:
        """Let calls that were left behind count as never ended if their only attempt hangs, or if
        there was none.

        The others are forgotten.

        Of another process none counts: it keeps its own time, and may have been about to give up.
        """
        late = [one for one in part.calls if one.told is None and not one.cancelled]
        for call in late:
            had_its_time = call.ended_at is not None and call.ended_at - call.asked_at >= patience
            call.ended_at = None
            mark = mark_of(call.ask.code)
            attempts = [sent for sent in part.requests if sent.mark == mark]
            once = len({sent.test for sent in attempts}) == len(attempts)
            stuck = once and any("hang" in sent.faults for sent in attempts)
            if not attempts and not part.scene.events:  # it waits for a permit that nobody holds
                stuck = _idle_since(part, call.asked_at)
            if not self._child and had_its_time and stuck:
                part.scene = replace(part.scene, horizon=patience)
                continue
            part.calls.remove(call)
            self._forgotten_marks.add(mark)
            after = (
                f"after {patience:g} s" if had_its_time else "when the time of the trial was over"
            )
            drips = attempts and "drip" in attempts[-1].faults
            why = (
                "; its answer trickles, and a timeout between two bytes never ends that"
                if drips
                else ""
            )
            self._forgotten[call.ask.call] = f"had not ended {after}, and was left behind{why}"
        if late or part.broken_off:
            part.broken_off, part.busy, part.connections_left = "", 0, 0


def _idle_since(part: PlayedScene, at: float) -> bool:
    """Was nothing in flight since then, and was no client asked to wait for longer?"""
    return all(
        one.ended is not None and one.ended + (one.retry_after or 0.0) <= at
        for one in part.requests
    )


def _batches(plan: TrialPlan, *, at_once: bool) -> Iterator[list[Any]]:
    """Yield which scenes are played together: one, or all up to the next that depends on the
    record."""
    batch: list[Any] = []
    for planned in plan.scenes:
        if batch and not (at_once and isinstance(planned, Scene) and isinstance(batch[0], Scene)):
            yield batch
            batch = []
        batch.append(planned)
    yield batch


def _join(whole: PlayedScene, parts: list[PlayedScene]) -> None:
    whole.divided = len(parts) > 1
    for part in parts:
        whole.settings = part.settings
        whole.scene = replace(whole.scene, horizon=min(whole.scene.horizon, part.scene.horizon))
        whole.calls += part.calls
        if (
            "" in part.scene.programs
        ):  # a command that makes calls of its own: its first one is followed
            part.requests[:] = [
                sent for sent in part.requests if sent.body == part.requests[0].body
            ]
            for sent in part.requests:
                sent.mark = part.scene.calls[0].ask.call
        whole.requests += part.requests
        whole.other_requests += part.other_requests
        whole.busy += part.busy
        whole.connections_left = max(whole.connections_left, part.connections_left)
        whole.tasks_left += part.tasks_left
        whole.printed += part.printed
        whole.logged += part.logged
        whole.raised_at_end = whole.raised_at_end or part.raised_at_end
    whole.began = min((part.began for part in parts), default=0.0)
    whole.ended = max((part.ended for part in parts), default=0.0)
    whole.requests.sort(key=lambda sent: sent.at)


def _pace(record: Record) -> float:
    """Return the longest time that a plain call spent outside the sandbox: what this client
    takes on this machine."""
    found = [0.0]
    for played in (record.scenes[name] for name in ("programs", "idle") if name in record.scenes):
        sent = Counter(one.mark for one in played.requests)
        handled = {
            one.mark: one.ended - one.at
            for one in played.requests
            if one.ended is not None and not one.faults and sent[one.mark] == 1
        }
        for call in played.calls:
            took = handled.get(mark_of(call.ask.code) or "")
            if took is not None and call.told is not None and call.ended_at is not None:
                found.append(call.ended_at - call.asked_at - took)
    return max(found)


class _Lateness(threading.Thread):
    """Measures by how much a thread comes too late: little on an idle machine, much on a busy
    one."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.worst = 0.0
        self._clock, self._sleep = (
            time.monotonic,
            time.sleep,
        )  # the true ones: a fast clock comes later
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
    """A client whose calls are left behind after some time: one that never ends must not keep
    the others waiting."""

    def __init__(self, client: TrialClient, scene: Scene, seconds: float, jitter: float) -> None:
        self.takes = client.takes
        self._client = client
        counts = Counter(one.ask.code for one in scene.calls)
        self._again = {code for code, count in counts.items() if count > 1}
        self._seconds, self._jitter = seconds, jitter
        self.begin, self.end, self.inside = client.begin, client.end, client.inside

    async def call(self, ask: TrialAsk) -> Told:
        made: asyncio.Future[Told] = asyncio.ensure_future(self._client.call(ask))
        try:
            await asyncio.wait([made], timeout=self._seconds)
        finally:
            if not made.done():
                made.cancel()
        if not made.done():
            raise asyncio.CancelledError
        if ask.code in self._again:
            await asyncio.sleep(
                2 * self._jitter
            )  # by time only its requests are told from those of the next call
        return made.result()


def _slow_last(scene: Scene, scale: float) -> Scene:
    """Let calls that may take for ever begin at once, beside the others, so that their times do
    not add up."""
    slow = {
        rule.get("call", "").partition(TEST)[0]
        for rule in scene.faults
        if _is_slow(rule.get("what"), scale)
    }
    calls = [one for one in scene.calls if one.ask.call not in slow]
    last = [replace(one, in_turn=False) for one in scene.calls if one.ask.call in slow]
    return replace(scene, calls=(*calls, *last))


def _is_slow(what: Any, scale: float) -> bool:
    if not isinstance(what, dict):
        return bool(what == "hang")
    return bool(
        what.get("drip", {}).get("bytes") == 1
        or what.get("retry_after", 0.0) >= _LONGEST_GAP * scale
    )


def _closer(scene: Scene, longest: float) -> Scene:
    """Shorten the times in which nothing is planned."""
    times = sorted({0.0, *(one.at for one in scene.calls), *(one.at for one in scene.events)})
    moved, shift = dict[float, float](), 0.0
    for before, at in zip([0.0, *times], times, strict=False):
        shift += max(0.0, at - before - longest)
        moved[at] = at - shift
    calls = tuple(replace(one, at=moved[one.at]) for one in scene.calls)
    return replace(
        scene, calls=calls, events=tuple(replace(one, at=moved[one.at]) for one in scene.events)
    )


def _groups(scene: Scene) -> list[Scene]:
    """Divide calls that are made one after the other, at no given time; those of one program
    stay together."""
    if (
        scene.events
        or scene.shuffled
        or any(one.at or one.cancel_after is not None for one in scene.calls)
    ):
        return [scene]
    alone = [one for one in scene.calls if not one.in_turn]
    others = [one for one in scene.calls if one.in_turn]
    codes = list(dict.fromkeys(one.ask.instance or one.ask.code for one in others))
    group = {code: number % _CLIENTS for number, code in enumerate(codes)}
    divided: list[list[Any]] = [[] for _ in range(_CLIENTS)]
    for one in others:
        divided[group[one.ask.instance or one.ask.code]].append(one)
    divided += [[one] for one in alone]
    return [replace(scene, calls=tuple(calls)) for calls in divided if calls]


def _single(scene: Scene) -> list[Scene]:
    """Divide into one scene per call that meets a fault or an event, whatever the programs that
    are sent in it."""
    singles = []
    for one in scene.calls:
        faults = tuple(
            {**rule, "call": None} for rule in scene.faults if rule.get("call") == one.ask.call
        )
        faults = tuple(
            {key: value for key, value in rule.items() if value is not None} for rule in faults
        )
        if faults or scene.events:
            programs = {"": scene.programs.get(one.ask.call, ())}
            singles.append(replace(scene, calls=(one,), faults=faults, programs=programs))
    return singles
