"""Why a learned scenario is not like its log: for each figure that is out, the part of calls that
differs most."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sfusion_tools.outcome import FAILURES
from sfusion_tools.record import Attempt, Call

from .attempts import InFlight, ending_of, seconds_of

_DIFFERS = 0.1
"""The share by which callers under way must differ to explain a rate (chosen)."""
_POINTS = 1.0
"""Percentage points by which a share must differ to be an explanation (chosen)."""


@dataclass(frozen=True, slots=True)
class TimeUse:
    """Where the time of calls goes, in seconds of a call on average, and how attempts ended."""

    seconds: dict[str, float]
    under_way: float
    """Calls under way, on average."""
    endings: dict[str, float]
    """Percent of attempts, of those that got no result."""
    programs: tuple[float, ...]
    """How long programs ran as far as that is known, in rising order."""


def time_use_of(calls: Sequence[Call]) -> TimeUse:
    """Divide calls into waits, programs, what requests take beside them, and what led to another
    attempt."""
    ended = [call for call in calls if seconds_of(call) is not None]
    sums: dict[str, float] = defaultdict(float)
    programs = []
    for call in ended:
        program, request = _last_request(call)
        waited = call.waited + sum(attempt.waited for attempt in call.attempts)
        rest = (seconds_of(call) or 0.0) - waited - request
        sums["waits for permits"] += waited
        sums["programs"] += program
        sums["requests beside their programs"] += request - program
        sums["earlier attempts and pauses"] += max(0.0, rest)
        if call.attempts and call.outcome not in FAILURES:
            programs.append(program)
    endings = Counter(_ending(attempt) for call in ended for attempt in call.attempts)
    attempts = max(endings.total(), 1)
    return TimeUse(
        seconds={name: total / max(len(ended), 1) for name, total in sums.items()},
        under_way=_under_way(ended),
        endings={
            name: 100 * count / attempts for name, count in endings.items() if name != "answered"
        },
        programs=tuple(sorted(programs)),
    )


def _last_request(call: Call) -> tuple[float, float]:
    """Return the seconds of the last program of a call, and of the request that ran it."""
    if not call.attempts:
        return 0.0, 0.0
    last = call.attempts[-1]
    request = last.seconds or 0.0
    program = request if last.execution_time is None else min(last.execution_time, request)
    return program, request


def _ending(attempt: Attempt) -> str:
    ending = ending_of(attempt)
    return f"status {attempt.status}" if ending == "status" else ending.replace("_", " ")


def _under_way(calls: Sequence[Call]) -> float:
    spans = [(call.began, call.began + (seconds_of(call) or 0.0)) for call in calls]
    if not spans:
        return 0.0
    busy = InFlight(spans)
    return busy.mean(busy.times[0], busy.times[-1])


def reasons(names: Sequence[str], log: TimeUse, run: TimeUse, timeout: float) -> Iterator[str]:
    """Yield for each figure that is out, by its name, what differs; ``timeout`` is that of
    programs.

    Of the main cause and of when calls failed, the table says all that is known.
    """
    for name in names:
        if name == "main cause" or name.startswith("times of "):
            continue
        said = _reason(name, log, run, timeout)
        yield f"{name}: {said or 'no part of the calls tells why'}"


def _reason(name: str, log: TimeUse, run: TimeUse, timeout: float) -> str:
    if name == "program_timeout":
        return _timeouts(log, run, timeout)
    if name in ("p50 of a call", "p95 of a call"):
        return _time(log, run)
    if name.startswith(("calls per second", "per second")):
        return _callers(log, run) or _time(log, run)
    return _endings(log, run)


def _timeouts(log: TimeUse, run: TimeUse, timeout: float) -> str:
    shares = []
    for use in (log, run):
        long = sum(seconds >= timeout for seconds in use.programs)
        shares.append(f"{100 * long / max(len(use.programs), 1):.1f}%")
    return f"{shares[0]} of the programs ran for {timeout:g} s or more, {shares[1]} in the scenario"


def _time(log: TimeUse, run: TimeUse) -> str:
    """Name the part of calls whose time differs most."""
    names = log.seconds.keys() | run.seconds.keys()
    apart = {name: run.seconds.get(name, 0.0) - log.seconds.get(name, 0.0) for name in names}
    most = max(sorted(apart), key=lambda name: abs(apart[name]), default="")
    if not most or not apart[most]:
        return ""
    return (
        f"{most} take {log.seconds.get(most, 0.0):.3g} s of a call on average, "
        f"{run.seconds.get(most, 0.0):.3g} s in the scenario"
    )


def _callers(log: TimeUse, run: TimeUse) -> str:
    if not log.under_way or abs(run.under_way / log.under_way - 1) < _DIFFERS:
        return ""
    return (
        f"{log.under_way:.3g} calls are under way on average, {run.under_way:.3g} in the scenario"
    )


def _endings(log: TimeUse, run: TimeUse) -> str:
    """Name the ending of attempts whose share differs most."""
    names = log.endings.keys() | run.endings.keys()
    apart = {name: run.endings.get(name, 0.0) - log.endings.get(name, 0.0) for name in names}
    most = max(sorted(apart), key=lambda name: abs(apart[name]), default="")
    if not most or abs(apart[most]) < _POINTS:
        return ""
    return (
        f"{log.endings.get(most, 0.0):.1f}% of the attempts ended with {most}, "
        f"{run.endings.get(most, 0.0):.1f}% in the scenario"
    )
