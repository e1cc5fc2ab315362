"""What a log tells about other limits than its own, and the shortest experiment that would tell the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sfusion.harness.studies.learn.attempts import TimedAttempt
from sfusion.harness.studies.learn.causes import PermitWaits
from sfusion.harness.studies.learn.in_flight import InFlight
from sfusion.harness.studies.learn.sandbox_fit import SandboxFit
from sfusion_tools.wording import counted

_WIDE = 4.5
"""How many times the least possible number of cores the most possible one may be for advice to rest on it."""
_CALLS = 200
"""Calls that an experiment needs."""
_DOCTOR = "or measure with `sfusion doctor URL --sweep --program typical.py`"


@dataclass(frozen=True, slots=True)
class Knowledge:
    """From which ``rate_limit`` to which one the log tells what happens."""

    least: int
    most: int | None
    """None: no call was held back, so a higher one changes nothing."""
    unknown: str
    """What the log does not tell, and what would; empty if it tells all."""
    is_unsure: bool = False
    """True if the server may have been full, or not."""


def find_knowledge(
    sandboxes: Sequence[SandboxFit], permits: PermitWaits | None, peak: int, per_second: float
) -> Knowledge:
    limit = permits.limit if permits is not None and permits.pace is None else None
    minutes = max(1, math.ceil(_CALLS / max(per_second, 0.01) / 60))
    known = [(one, one.slowness.cores) for one in sandboxes]
    shared = [cores for one, cores in known if cores is not None and one.slowness.model.get("cores")]
    vague = [one for one in shared if one.most > _WIDE * one.least]
    if vague:
        least, most = min(one.least for one in vague), max(one.most for one in vague)
        return Knowledge(
            min(math.ceil(sum(one.most for one in vague)), limit or peak),
            limit,
            f"programs share cores, but {least:.2g} to {most:.2g} of them would explain the log, because nearly all "
            f"requests met the same load; {_experiment(max(1, (limit or peak) // 4), minutes)}",
        )
    unsure = [cores for one, cores in known if cores is not None and cores.is_unsure and not _is_saturated(one)]
    fewer = max(1, math.floor(sum(one.least for one in unsure)))
    if limit is not None and not any(_is_saturated(one) for one in sandboxes):
        few = any(cores is None and one.slowness.kind == "none" for one, cores in known)
        if few:
            doubt, other = "too few requests to tell whether the server was full with them", max(1, limit // 2)
        elif not unsure:
            doubt, other = "the server was not full with them: what more would do is not known", 2 * limit
        else:
            doubt = f"nearly always as many: it does not tell whether the server was full, perhaps already with {fewer}"
            other = max(1, limit // 2)
        unknown = f"the log never has more than {limit} in flight, and {doubt}; {_experiment(other, minutes)}"
        return Knowledge(limit if unsure or few else 1, limit, unknown, bool(unsure) or few)
    unknown = (
        f"with nearly always the same load the log does not tell whether programs share cores: {fewer} in flight may "
        f"do as well as {peak}; {_experiment(max(1, peak // 2), minutes)}"
    )
    return Knowledge(1, limit, unknown if unsure else "")


def _is_saturated(one: SandboxFit) -> bool:
    return bool(one.slowness.model) or one.quota is not None


def _experiment(limit: int, minutes: int) -> str:
    return f"to find out, run {counted(minutes, 'minute')} with rate_limit {limit}, {_DOCTOR}"


_PARTS = 24
_FEWEST = 30
_WAITED = 0.02
_APART = 1.3
"""How many times as many in flight make it another limit."""


@dataclass(frozen=True, slots=True)
class LimitSeen:
    """What requests did while at most so many were in flight, and others waited."""

    limit: int
    per_second: float
    """Requests answered."""
    requests: int


def limits_seen(requests: Sequence[TimedAttempt]) -> tuple[LimitSeen, ...]:
    """The limits in rising order; empty if there was only one, or if too little waited to tell."""
    size = len(requests)
    parts = [requests[size * k // _PARTS : size * (k + 1) // _PARTS] for k in range(_PARTS)]
    found: list[list[Sequence[TimedAttempt]]] = []
    limits: list[int] = []
    busy = InFlight((one.began, one.ended) for one in requests)
    for part in parts:
        if sum(one.attempt.waited > _WAITED for one in part) < len(part) / 2 or not part:
            continue
        counts = sorted(busy.after(one.began) for one in part)
        limit = max(1, counts[len(counts) // 2])
        near = next((place for place, one in enumerate(limits) if 1 / _APART < limit / one < _APART), None)
        if near is None:
            limits.append(limit)
            found.append([part])
        else:
            found[near].append(part)
    seen = [_seen(limit, parts) for limit, parts in sorted(zip(limits, found, strict=True), key=lambda pair: pair[0])]
    kept = tuple(one for one in seen if one.requests >= _FEWEST)
    return kept if len(kept) > 1 else ()


def _seen(limit: int, parts: Sequence[Sequence[TimedAttempt]]) -> LimitSeen:
    answered = sum(one.ending == "answered" for part in parts for one in part[1:])
    seconds = sum(part[-1].began - part[0].began for part in parts)
    return LimitSeen(limit, answered / seconds if seconds > 0 else 0.0, sum(map(len, parts)))
