"""What a server does to a request beside running its program: cores that programs share, a line, a
cost of each start.

The log has two times of a request: how long it took, and how long its program ran, as the server
reports it. What is left is a wait. Programs that ran at once while others waited are the workers of
a line, and the time from one start to the next is what a start costs. Either is believed if it
predicts the waits, also those of requests that met a light load. Programs that run the longer the
more of them run share cores.
"""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Any

from sfusion_tools.wording import counted

from .attempts import SHORTEST, InFlight, TimedAttempt, loads_met
from .cores import CoresFit, ProgramRun, fit_cores
from .distributions import rounded
from .slowness import Slowness


@dataclass(frozen=True, slots=True)
class WaitsFit:
    """What requests wait for in the server before their programs run."""

    kind: str
    """queue or spawn."""
    model: dict[str, Any]
    predicted: tuple[float, ...]
    """Seconds that each request would wait."""
    wrong: float
    """The share of all waits by which it is wrong."""
    per_second: float
    """Programs that it lets through."""

    @property
    def says(self) -> str:
        if self.kind == "spawn":
            return (
                "programs start one after the other, each in "
                f"{self.model['spawn_cost']:g} s, and the others wait"
            )
        return f"{self.model['workers']} programs run at a time, the others wait in the server"

    @property
    def guess(self) -> str:
        if self.kind == "spawn":
            return f"one start of {self.model['spawn_cost']:g} s after the other"
        return f"a line before {counted(self.model['workers'], 'worker')}"


_WAIT_SHARE = 0.02
"""The share of the time of all answers from which on waits are looked at (chosen)."""
_BETTER = 0.5
"""By how much less wrong than a wait that is always the same it must be about requests that met a
light load (chosen)."""
_NEARLY = 0.3
"""The share of all waits by which it may be wrong (chosen: starts take unequally long)."""
_SAME_RATE = 0.2
"""The share by which the programs that it lets through per second may differ from those that were
seen (chosen: run times are reported a little too long)."""
_PARTS = 24
"""Parts of the log within which a trend of waits is none (chosen)."""
FEWEST_TELLING = 6
"""Requests that met half the usual load, from which on they tell whether waits depend on it
(chosen: a client that starts with 12 permits sends as many at its beginning)."""
_TOGETHER = 0.1
"""The share of a usual request within which others were sent together with it (chosen)."""
_NEARLY_ALL = 0.95
"""The share of answers that are nearly all of them (chosen)."""
LIGHT = 0.5
"""The share of the usual load up to which a request met another one (chosen)."""


def find_waits(
    answered: Sequence[TimedAttempt], everything: Sequence[TimedAttempt], waits: Sequence[float]
) -> WaitsFit | None:
    """Return what predicts the waits from the requests before them; None if a wait that is always
    the same, or depends on the time only, is as good a guess.

    Where nearly all requests met the same load, those that met less of it decide.
    """
    if not sum(waits):
        return None
    always = [statistics.median(waits)] * len(waits)
    steady = min(_wrong(waits, always), _off_trend(answered, waits) / sum(waits))
    found = sorted(_explanations(answered, everything, waits), key=attrgetter("wrong"))
    for explanation in found:
        if explanation.wrong <= max(_BETTER * steady, _WAIT_SHARE):
            return explanation
    telling = telling_places(answered, everything)
    per_second = _per_second(answered)
    for explanation in found:
        off = _off(waits, explanation.predicted, telling)
        rate = explanation.per_second / per_second
        is_near = explanation.wrong <= _NEARLY and abs(rate - 1) <= _SAME_RATE
        if is_near and off < _BETTER * _off(waits, always, telling):
            return explanation
    return None


def _explanations(
    answered: Sequence[TimedAttempt], everything: Sequence[TimedAttempt], waits: Sequence[float]
) -> Iterator[WaitsFit]:
    """Yield a line before as many workers as were seen to run while others waited, and starts at
    the distance that was seen."""
    starts = [request.began + wait for request, wait in zip(answered, waits, strict=True)]
    running = InFlight(
        (start, request.ended) for request, start in zip(answered, starts, strict=True)
    )
    beside = sum(
        running.mean(request.began, start) * (start - request.began)
        for request, start in zip(answered, starts, strict=True)
    )
    seen = beside / sum(waits)
    ran = statistics.fmean(
        request.ended - start for request, start in zip(answered, starts, strict=True)
    )
    for workers in sorted({max(1, math.floor(seen)), max(1, math.ceil(seen))}):
        predicted = tuple(_line_waits(answered, everything, workers))
        yield WaitsFit(
            kind="queue",
            model={"kind": "queue", "workers": workers},
            predicted=predicted,
            wrong=_wrong(waits, predicted),
            per_second=workers / max(ran, SHORTEST),
        )

    ordered = sorted(zip(starts, (request.began for request in answered), strict=True))
    gaps = [later[0] - sooner[0] for sooner, later in pairwise(ordered) if later[1] <= sooner[0]]
    for cost in {statistics.median(gaps), statistics.fmean(gaps)} if gaps else ():
        predicted = tuple(_spawn_waits(answered, everything, cost))
        yield WaitsFit(
            kind="spawn",
            model={"spawn_cost": rounded(cost)},
            predicted=predicted,
            wrong=_wrong(waits, predicted),
            per_second=1 / max(cost, SHORTEST),
        )


def _per_second(answered: Sequence[TimedAttempt]) -> float:
    span = max(request.ended for request in answered) - answered[0].began
    return len(answered) / max(span, SHORTEST)


def _off(waits: Sequence[float], predicted: Sequence[float], places: Sequence[int]) -> float:
    return sum(abs(predicted[place] - waits[place]) for place in places)


def _wrong(waits: Sequence[float], predicted: Sequence[float]) -> float:
    return _off(waits, predicted, range(len(waits))) / sum(waits)


def telling_places(
    answered: Sequence[TimedAttempt], everything: Sequence[TimedAttempt]
) -> list[int]:
    """Return the places of the answers that met clearly fewer others than usual; empty if they are
    too few.

    A log may begin in the middle of a training: what was in flight then is not in it. So of its
    first requests only those count that were sent together.
    """
    if not answered:
        return []
    by_request = loads_met(everything)
    loads = [by_request.get(id(request), 0) for request in answered]
    usual = statistics.median(loads)
    took = sorted(request.seconds for request in answered)
    first = everything[0].began
    together = first + _TOGETHER * took[len(took) // 2]
    known = first + took[int(_NEARLY_ALL * len(took))]
    found = []
    for place, load in enumerate(loads):
        is_known = answered[place].began <= together or answered[place].began >= known
        if load <= LIGHT * usual and is_known:
            found.append(place)
    return found if len(found) >= FEWEST_TELLING else []


def _off_trend(answered: Sequence[TimedAttempt], waits: Sequence[float]) -> float:
    """Return how wrong it is to expect the median wait of each part of the log."""
    order = sorted(range(len(waits)), key=lambda place: answered[place].began)
    size = len(order)
    total = 0.0
    for part in range(_PARTS):
        own = [waits[place] for place in order[size * part // _PARTS : size * (part + 1) // _PARTS]]
        total += sum(abs(wait - statistics.median(own)) for wait in own)
    return total


def _line_waits(
    answered: Sequence[TimedAttempt], everything: Sequence[TimedAttempt], workers: int
) -> Iterator[float]:
    """How long each request waits if it starts as soon as fewer than ``workers`` before it have not
    ended."""
    latest: list[float] = []
    following = iter(answered)
    awaited = next(following, None)
    for other in everything:
        if other is awaited:
            yield max(0.0, latest[0] - other.began) if len(latest) == workers else 0.0
            awaited = next(following, None)
        if len(latest) < workers:
            heapq.heappush(latest, other.ended)
        else:
            heapq.heappushpop(latest, other.ended)


def _spawn_waits(
    answered: Sequence[TimedAttempt], everything: Sequence[TimedAttempt], cost: float
) -> Iterator[float]:
    """How long each request waits if programs are started one after the other, which takes ``cost``
    seconds each."""
    free = -math.inf
    following = iter(answered)
    awaited = next(following, None)
    for other in everything:
        free = max(free, other.began) + cost
        if other is awaited:
            yield free - other.began
            awaited = next(following, None)


_REPORTED = 0.9
"""The share of answers that must say how long their programs ran (chosen)."""


def find_server(
    answered: Sequence[TimedAttempt],
    everything: Sequence[TimedAttempt],
    stopped: Sequence[TimedAttempt],
) -> Slowness:
    """Find what the server adds to the time of programs under load; of kind none if nothing shows.

    ``stopped`` programs ran into their time limit, and ``everything`` is what the server admitted.
    """
    times = times_of(answered)
    waits = None
    if sum(times.delays) >= _WAIT_SHARE * sum(times.took):
        waits = find_waits(answered, everything, times.delays)
    programs = _programs(answered, stopped, times)
    cores = fit_cores(programs, _others(answered, everything, stopped))
    if waits is None and not cores.is_shared:
        return Slowness("none", (), (), cores=cores)

    size = len(answered)
    base = tuple(max(run, SHORTEST) for run in times.runs)
    if cores.is_shared:
        base = cores.work[:size]
    lost = 1 - sum(base) / sum(times.took)
    kind = "contention"
    if waits is not None and sum(times.delays) / sum(times.took) >= lost / 2:
        kind = waits.kind
    parts = [
        *(_of_waits(waits, times) if waits is not None else ()),
        *(_of_cores(cores, base, times) if cores.is_shared else ()),
    ]
    return Slowness(
        kind=kind,
        base=base,
        kept=tuple(range(size)),
        left=tuple(math.log(own / max(cores.law.at(0.5), SHORTEST)) for own in base),
        model=_model(waits, cores),
        says="; ".join(says for says, _ in parts),
        evidence="; ".join(evidence for _, evidence in parts),
        lost=lost,
        cores=cores,
        longer_programs=_longer_programs(cores, programs[size:]) if cores.is_shared else (),
    )


@dataclass(frozen=True, slots=True)
class Times:
    """What is known of the time of each answer."""

    is_reported: bool
    """Nearly all answers say how long their programs ran."""
    took: list[float]
    runs: list[float]
    """How long each program ran; the whole time where that is not reported."""
    delays: list[float]
    """The rest of the time."""


def times_of(answered: Sequence[TimedAttempt]) -> Times:
    """Return how long each answer took, and its program, as the server reports it."""
    took = [max(request.seconds, SHORTEST) for request in answered]
    reported = [request.attempt.execution_time for request in answered]
    count = sum(seconds is not None for seconds in reported)
    is_reported = count >= _REPORTED * len(reported)
    runs = []
    for own, whole in zip(reported, took, strict=True):
        runs.append(min(own, whole) if own is not None and is_reported else whole)
    delays = [whole - own for whole, own in zip(took, runs, strict=True)]
    return Times(is_reported, took, runs, delays)


def _programs(
    answered: Sequence[TimedAttempt], stopped: Sequence[TimedAttempt], times: Times
) -> list[ProgramRun]:
    """Return when programs ran: those that were answered, then those that were stopped."""
    programs = [
        ProgramRun(request.ended - own, request.ended)
        for request, own in zip(answered, times.runs, strict=True)
    ]
    for request in stopped:
        own = request.attempt.execution_time
        if own is None and times.is_reported:
            continue
        ran_for = request.seconds
        if own is not None and times.is_reported:
            ran_for = min(own, request.seconds)
        programs.append(ProgramRun(request.ended - ran_for, request.ended, True))
    return programs


def _others(
    answered: Sequence[TimedAttempt],
    everything: Sequence[TimedAttempt],
    stopped: Sequence[TimedAttempt],
) -> list[ProgramRun]:
    """Return the requests that took part of the cores, of which no more is known."""
    known = {id(request) for request in (*answered, *stopped)}
    return [
        ProgramRun(request.began, request.ended)
        for request in everything
        if id(request) not in known and request.ending != "status"
    ]


def _model(waits: WaitsFit | None, cores: CoresFit) -> dict[str, Any]:
    """Return the model of the server as a scenario writes it."""
    model: dict[str, Any] = {}
    if waits is not None:
        model.update(waits.model)
    if cores.is_shared:
        model["cores"] = rounded(cores.cores)
    return model


def _of_waits(waits: WaitsFit, times: Times) -> Iterator[tuple[str, str]]:
    """Yield what is said of waits in the server, and the evidence."""
    share = sum(times.delays) / sum(times.took)
    yield (
        waits.says,
        f"{share:.0%} of the time of requests is before their programs ran; "
        f"{waits.guess} predicts these waits with an error of {waits.wrong:.0%}",
    )


def _of_cores(cores: CoresFit, base: Sequence[float], times: Times) -> Iterator[tuple[str, str]]:
    """Yield what is said of shared cores, and the evidence."""
    possible = f"{cores.least:.2g} or more"
    if cores.most < cores.peak:
        possible = f"{cores.least:.2g} to {cores.most:.2g}"
    doubt = ""
    if not times.is_reported:
        doubt = "; without reported execution times, a queue would look the same"
    yield (
        f"programs share about {rounded(cores.cores):g} cores and get slower beyond "
        "that many in flight",
        f"programs ran for {statistics.median(times.runs):.3g} s by the median with up to "
        f"{cores.peak} at a time, and would for {statistics.median(base):.3g} s alone; "
        f"{possible} cores are possible{doubt}",
    )


def _longer_programs(cores: CoresFit, stopped: Sequence[ProgramRun]) -> tuple[float, ...]:
    """Seconds that stopped programs would have run alone, without those that never end."""
    given = sorted(cores.work[-len(stopped) :]) if stopped else []
    count = len(given) - min(round(cores.endless * len(cores.work)), len(given))
    shares = (
        cores.law.longer(math.log(seconds)) * (place + 0.5) / count
        for place, seconds in enumerate(given[:count])
    )
    return tuple(cores.law.at(min(max(share, 1e-6), 0.999)) for share in shares)
