"""What a log tells about other limits than its own, and the cheapest experiment that tells the
rest."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sfusion_tools.wording import counted

from .attempts import InFlight, TimedAttempt
from .cores import CoresFit
from .permits import WAITED, PermitWaits, in_each
from .sandbox_fit import SandboxFit

_PARTS = 24
"""Parts of the log in which limits are looked for (chosen)."""
_FEWEST = 30
"""Requests from which on a limit is more than an accident (chosen)."""
_APART = 1.25
"""How many times as many in flight make it another limit (chosen: an experiment changes it by as
much, see ``limit_to_try``)."""


@dataclass(frozen=True, slots=True)
class LimitSeen:
    """What requests did while at most so many were in flight, and others waited."""

    limit: int
    per_second: float
    """Requests answered, while others waited."""
    requests: int


def limits_seen(requests: Sequence[TimedAttempt]) -> tuple[LimitSeen, ...]:
    """The limits in rising order; empty if there was only one, or if too little waited to tell.

    ``requests`` are in the order in which they began.
    """
    size = len(requests)
    parts = [requests[size * k // _PARTS : size * (k + 1) // _PARTS] for k in range(_PARTS)]
    found: dict[int, list[Sequence[TimedAttempt]]] = {}
    busy = InFlight((request.began, request.ended) for request in requests)
    for part in parts:
        if sum(request.attempt.waited > WAITED for request in part) < len(part) / 2 or not part:
            continue
        counts = sorted(busy.after(request.began) for request in part)
        limit = max(1, counts[len(counts) // 2])
        near = next(
            (known_limit for known_limit in found if 1 / _APART < limit / known_limit < _APART),
            limit,
        )
        found.setdefault(near, []).append(part)
    seen = [_seen(limit, found[limit]) for limit in sorted(found)]
    kept = tuple(limit_seen for limit_seen in seen if limit_seen.requests >= _FEWEST)
    return kept if len(kept) > 1 else ()


def _seen(limit: int, parts: Sequence[Sequence[TimedAttempt]]) -> LimitSeen:
    return LimitSeen(limit, per_second_at_limit(parts), sum(map(len, parts)))


def per_second_at_limit(parts: Iterable[Sequence[TimedAttempt]]) -> float:
    """Return how many answered requests per second began while some waited for a permit.

    Only then was the limit reached: pauses, and steps that begin or end, say nothing about it. Each
    part is in the order in which its requests began.
    """
    answered = 0
    seconds = 0.0
    for part in parts:
        waiting = list(_waiting_times(part))
        seconds += sum(until - since for since, until in waiting)
        begins = [request.began for request in part if request.ending == "answered"]
        for since, until in waiting:
            answered += bisect_right(begins, until) - bisect_right(begins, since)
    return answered / seconds if seconds > 0 else 0.0


def _waiting_times(part: Sequence[TimedAttempt]) -> Iterator[tuple[float, float]]:
    """Yield from when to when some of the requests waited, one stretch after the other."""
    reached = part[0].began
    for request in part:
        since = max(reached, request.began - request.attempt.waited)
        if request.attempt.waited > WAITED and since < request.began:
            yield since, request.began
            reached = request.began


_WIDE = 4.5
"""How many times the least possible number of cores the most possible one may be for advice to
rest on it (chosen)."""
_CALLS = 200
"""Calls that an experiment needs (chosen)."""
_AS_MUCH = 0.92
"""The share of the best throughput that is as much (chosen: a log of minutes is as precise)."""
_LESS = 0.75
"""The share of what is in flight with which an experiment shows whether the server was full
(chosen: one that was full does as much with it, another one loses a quarter for some minutes)."""
_FEW = 3
"""So many in flight are one more in an experiment (chosen: one fewer is a third or a half less)."""
_MORE = 1.5
"""The same, for a server that was not full (chosen: one that is full then makes calls wait half as
long again, not twice)."""
_SOME_STOPPED = 0.02
"""The share of calls whose programs were stopped from which on more in flight may cost some
(chosen)."""
_MANY_STOPPED = 0.1
"""The share of programs that no model lets end from which on the server may be what stops them
(chosen: programs that never end are a few in a hundred)."""
_DOCTOR = "or measure a free sandbox with `sfusion doctor URL --sweep --log EVENTS`"


@dataclass(frozen=True, slots=True)
class Knowledge:
    """From which ``rate_limit`` to which one the log tells what happens; nothing but what happened
    if both are the same."""

    least: int
    most: int | None
    """None: no call was held back, so a higher one changes nothing."""
    unknown: str
    """What the log does not tell, and what would; empty if it tells all."""
    is_unsure: bool = False
    """True if the server may have been full, or not."""
    tells_of_more_callers: bool = True
    """False if nothing held callers back and the server was never full."""
    is_compared: bool = False
    """True if the log had several limits: of those, ``least`` is the lowest that did as much."""


def limit_to_try(count: int) -> int:
    """Return how many an experiment sends at a time instead of ``count``: fewer, but never half;
    more where that would be half."""
    if count <= _FEW:
        return count + 1
    return min(math.ceil(_LESS * count), math.floor(count / _APART))


def experiment_minutes(per_second: float) -> int:
    """Return how long an experiment takes that makes enough calls."""
    return max(1, math.ceil(_CALLS / max(per_second, 0.01) / 60))


def experiment(limit: int, in_flight: int, minutes: int, processes: int = 1) -> str:
    """Say what to run to find out what the log does not tell, where it has ``in_flight``;
    ``processes`` have limiters of their own."""
    then = " (if as many calls end per second, go on by a quarter; if not, go back)"
    if limit > in_flight:
        then = " (if more calls end per second, go on; if not, go back)"
    length = counted(minutes, "minute")
    setting = f"rate_limit {limit}"
    if processes > 1:
        setting = _of_processes(limit, in_flight, processes)
    return f"to find out, run {length} with {setting}{then}, {_DOCTOR}"


def _of_processes(limit: int, in_flight: int, processes: int) -> str:
    """Say what to set in each process for an experiment with at most this limit in all."""
    each = limit // processes
    if limit > in_flight:
        each = max(each, in_flight // processes + 1)
    elif each == 0 and in_flight <= processes:  # they have one each, which is too much
        return f"{limit} of {processes} processes, rate_limit 1 in each"
    return f"rate_limit {in_each(max(each, 1), processes)}"


def find_knowledge(
    sandboxes: Sequence[SandboxFit],
    permits: PermitWaits | None,
    peak: int,
    per_second: float,
    seen: Sequence[LimitSeen] = (),
    stopped: float = 0.0,
) -> Knowledge:
    """Find out for which limits the log tells what happens, and what would tell it for others;
    ``seen`` are those that the client had one after the other."""
    log = _LimitedLog(
        sandboxes=sandboxes,
        limit=permits.limit if permits is not None and permits.pace is None else None,
        peak=peak,
        minutes=experiment_minutes(per_second),
        seen=seen,
        stopped=stopped,
        processes=permits.processes if permits is not None else 1,
    )
    return (
        log.several_limits()
        or log.vague_overhead()
        or log.vague_cores()
        or log.many_stopped()
        or log.own_limit()
        or log.same_load()
    )


@dataclass(frozen=True)
class _LimitedLog:
    """A log in which the client, or the server, may have held requests back."""

    sandboxes: Sequence[SandboxFit]
    limit: int | None
    """The client's own."""
    peak: int
    minutes: int
    """How long an experiment would take."""
    seen: Sequence[LimitSeen]
    stopped: float
    """The share of calls whose programs ran into their time limit."""
    processes: int
    """How many have a limiter of their own; 1 if they share one."""

    def several_limits(self) -> Knowledge | None:
        """Did fewer in flight do as much as more?"""
        if not self.seen or any(_waits_seen(sandbox) for sandbox in self.sandboxes):
            return None
        best = max(seen.per_second for seen in self.seen)
        good = [seen for seen in self.seen if seen.per_second >= _AS_MUCH * best]
        enough = good[0]
        least = self.seen[0]
        if enough is self.seen[-1]:
            return None  # the more, the better: the server was never full
        top = good[-1] if len(good) > 1 else self.seen[-1]
        is_better = len(good) == 1
        said = (
            f"in this log {enough.limit} in flight did {'more than' if is_better else 'as much as'}"
            f" {top.limit} ({enough.per_second:.3g} and {top.per_second:.3g} calls per second "
            "while others waited), if the programs were alike"
        )
        if enough is not least:
            said += f", and {least.limit} did less ({least.per_second:.3g})"
            if is_better:
                setting = f"{enough.limit}"
                if self.processes > 1:
                    setting = in_each(max(1, round(enough.limit / self.processes)), self.processes)
                said += f"; set rate_limit to {setting}, or run longer to know it better"
            return Knowledge(enough.limit, good[-1].limit, said, is_compared=True)
        fewer = limit_to_try(enough.limit)
        if fewer > enough.limit:
            return Knowledge(1, good[-1].limit, said, is_compared=True)
        return Knowledge(
            enough.limit,
            good[-1].limit,
            f"{said}; whether fewer do, it does not tell; {self._experiment(fewer)}",
            is_compared=True,
        )

    def vague_cores(self) -> Knowledge | None:
        """Is it only known that programs share cores, but not how many?"""
        shared = [
            sandbox.slowness.cores
            for sandbox in self.sandboxes
            if sandbox.slowness.model.get("cores") and sandbox.slowness.cores is not None
        ]
        vague = [cores for cores in shared if cores.most > _WIDE * cores.least]
        if not vague:
            return None
        least = min(cores.least for cores in vague)
        most = max(cores.most for cores in vague)
        in_flight = self.limit or self.peak
        enough = min(math.ceil(sum(cores.most for cores in vague)), in_flight)
        # More in flight than there are cores costs nothing, unless their programs are then stopped.
        costs = self.stopped >= _SOME_STOPPED
        return Knowledge(
            in_flight if costs else enough,
            in_flight if costs else self.limit,
            f"programs share cores, but {least:.2g} to {most:.2g} of them would explain "
            "the log, because nearly all requests met the same load; "
            f"{self._experiment(limit_to_try(in_flight))}",
        )

    def vague_overhead(self) -> Knowledge | None:
        """Does much of the time pass beside the programs, at nearly always the same load?"""
        vague = [
            sandbox.overhead
            for sandbox in self.sandboxes
            if sandbox.overhead is not None
            and sandbox.overhead.is_long
            and not sandbox.overhead.is_fixed
            and not _waits_seen(sandbox)
        ]
        in_flight = self.limit or self.peak
        if not vague or in_flight < 2:
            return None
        return Knowledge(
            self.limit or 1,
            self.limit,
            f"{vague[0].says}; {self._experiment(limit_to_try(in_flight))}",
            is_unsure=self.limit is not None,
        )

    def many_stopped(self) -> Knowledge | None:
        """Were so many programs stopped that the server may be the reason, and not their length?"""
        endless = [
            sandbox.slowness.cores.endless
            for sandbox in self.sandboxes
            if sandbox.slowness.cores is not None and not _is_saturated(sandbox)
        ]
        in_flight = self.limit or self.peak
        if in_flight < 2 or max(endless, default=0.0) < _MANY_STOPPED:
            return None
        return Knowledge(
            in_flight,
            in_flight,
            f"{max(endless):.0%} of the programs ran into their time limit: the log does not tell "
            "whether they never end, or the server was full or did not notice their end; "
            f"{self._experiment(limit_to_try(in_flight))}",
            is_unsure=self.limit is not None,
        )

    def own_limit(self) -> Knowledge | None:
        """Did the client never have enough in flight to fill the server?"""
        limit = self.limit
        if limit is None or any(_is_saturated(sandbox) for sandbox in self.sandboxes):
            return None
        unsure = self._unsure
        few = any(
            sandbox.slowness.cores is None and sandbox.slowness.kind == "none"
            for sandbox in self.sandboxes
        )
        if few:
            doubt = "too few requests to tell whether the server was full with them"
            other = limit_to_try(limit)
        elif not unsure:
            doubt = "the server was not full with them: what more would do is not known"
            other = math.ceil(_MORE * limit)
        else:
            doubt = (
                "nearly always as many: it does not tell whether the server was full, "
                f"perhaps already with {self._fewest(unsure)}"
            )
            other = limit_to_try(limit)
        return Knowledge(
            limit if unsure or few else 1,
            limit,
            f"the log never has more than {limit} in flight, and {doubt}; "
            f"{self._experiment(other)}",
            is_unsure=bool(unsure) or few,
        )

    def same_load(self) -> Knowledge:
        """Was the load always the same, so that it is not known whether programs share cores?"""
        unsure = self._unsure
        more = self.limit is not None or any(map(_is_saturated, self.sandboxes))
        if not unsure:
            return Knowledge(1, self.limit, "", tells_of_more_callers=more)
        # No call was held back: more than there were at a time, nobody will send.
        return Knowledge(
            1,
            self.limit,
            "with nearly always the same load the log does not tell whether programs share "
            f"cores: {self._fewest(unsure)} in flight may do as well as {self.peak}; "
            f"{self._experiment(limit_to_try(self.peak))}",
            tells_of_more_callers=more,
        )

    @property
    def _unsure(self) -> list[CoresFit]:
        """The cores of sandboxes that may have been full, or not."""
        found = []
        for sandbox in self.sandboxes:
            cores = sandbox.slowness.cores
            if cores is not None and cores.is_unsure and not _is_saturated(sandbox):
                found.append(cores)
        return found

    @staticmethod
    def _fewest(unsure: Sequence[CoresFit]) -> int:
        return max(1, math.floor(sum(cores.least for cores in unsure)))

    def _experiment(self, limit: int) -> str:
        return experiment(limit, self.limit or self.peak, self.minutes, self.processes)


def _waits_seen(sandbox: SandboxFit) -> bool:
    """Does the log show what requests wait for in the server, or what it refuses?"""
    shown = {"workers", "spawn_cost"} & sandbox.slowness.model.keys()
    return bool(shown) or sandbox.quota is not None


def _is_saturated(sandbox: SandboxFit) -> bool:
    return bool(sandbox.slowness.model) or sandbox.quota is not None
