"""Tells a journal second by second: what was in flight, what waited, what the limit was, what was done to the run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

from sfusion.harness.reports.stories import Event, Story, names_of, stories

Change: TypeAlias = tuple[float, int]


@dataclass(frozen=True, slots=True)
class Steps:
    """A number over time: it has ``values[i]`` from ``times[i]`` on."""

    times: tuple[float, ...] = ()
    values: tuple[int, ...] = ()

    @property
    def peak(self) -> int:
        """The highest value it ever had."""
        return max(self.values, default=0)


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that was done to the run: a fault that struck, a kill, a crash; ``until`` when it lasted."""

    at: float
    kind: str
    text: str
    call: str = ""
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run over time. What is in flight is counted at the callers, or at the server where they do not tell."""

    start: float
    end: float
    in_flight: Steps
    at_server: Steps
    waiting: Steps
    limit: Steps
    marks: tuple[Mark, ...]


_LASTING = {
    "crash": "restart",
    "wedge": "unwedge",
    "worker_paused": "worker_resumed",
    "cut_off": "reconnected",
    "limiter_died": "limiter_started",
}
"""What goes on for a while, and what ends it."""
_ORDINARY = frozenset({"began", "ended", "killed", "log", "rollout_started", "rollout_ended"})
"""What the world tells that is nothing done to the run; ``killed`` is told again by whoever died."""


def build_timeline(events: Iterable[Event], told: Sequence[Story] | None = None) -> Timeline:
    """The timeline of a journal; ``told`` are its stories, where somebody has them already."""
    listed = list(events)
    told = stories(listed) if told is None else told
    times = [float(event["at"]) for event in listed]
    start, end = min(times, default=0.0), max(times, default=0.0)
    return Timeline(
        start,
        end,
        _steps(
            _attempts(listed) if any(event["event"] == "attempt_started" for event in listed) else _at_server(listed)
        ),
        _steps(_at_server(listed)),
        _steps(sorted(_waits(told))),
        _limit(listed),
        tuple(_marks(listed)),
    )


def _steps(changes: Iterable[Change]) -> Steps:
    """Add up changes in their order.

    What rises and falls again within one instant is kept as a step of no length, since a limit may be broken there;
    what falls and rises again, as when a permit is handed on, is not.
    """
    times: list[float] = []
    values: list[int] = []
    now = 0
    for at, together in groupby(changes, key=lambda change: change[0]):
        before = peak = now
        for _, change in together:
            now += change
            peak = max(peak, now)
        if peak > max(before, now):
            times.append(at)
            values.append(peak)
        if now != before or peak > before:
            times.append(at)
            values.append(now)
    return Steps(tuple(times), tuple(values))


def _waits(told: Iterable[Story]) -> Iterable[Change]:
    for story in told:
        for span in story.spans:
            if span.kind == "waiting" and span.end > span.start:
                yield span.start, 1
                yield span.end, -1


def _attempts(events: Iterable[Event]) -> Iterable[Change]:
    """Attempts in flight, counted at the callers; those of a worker end with it."""
    flying: dict[tuple[Any, Any], Any] = {}
    for event in events:
        attempt, at = (event.get("call"), event.get("attempt")), float(event["at"])
        match event["event"]:
            case "attempt_started" if attempt not in flying:
                flying[attempt] = event.get("worker")
                yield at, 1
            case "attempt_ended" if attempt in flying:
                del flying[attempt]
                yield at, -1
            case "worker_died":
                for lost in [one for one, worker in flying.items() if worker == event.get("worker")]:
                    del flying[lost]
                    yield at, -1


def _at_server(events: Iterable[Event]) -> Iterable[Change]:
    """Requests at the server, whether or not their callers still wait."""
    there: set[tuple[Any, Any]] = set()
    for event in events:
        if event.get("source") != "server":
            continue
        request, at = (event.get("call"), event.get("attempt")), float(event["at"])
        if event["event"] == "arrived" and request not in there:
            there.add(request)
            yield at, 1
        elif event["event"] in ("answered", "unanswered") and request in there:
            there.discard(request)
            yield at, -1


def _limit(events: Iterable[Event]) -> Steps:
    changes: list[tuple[float, int]] = []
    for event in events:
        if (event.get("source"), event["event"]) in (("world", "began"), ("limiter", "resized")):
            value = next((event[key] for key in ("limit", "rate_limit") if event.get(key) is not None), None)
            if value is not None and (not changes or changes[-1][1] != value):
                changes.append((float(event["at"]), int(value)))
    return Steps(tuple(at for at, _ in changes), tuple(value for _, value in changes))


def _marks(events: Sequence[Event]) -> Iterable[Mark]:
    for place, event in enumerate(events):
        source, name, at = event.get("source"), str(event["event"]), float(event["at"])
        if source in ("server", "engine") and name == "strike":
            what = str(event.get("kind") or "")
            text = f"{event.get('rule') or what}: {what} in phase {event.get('phase')}"
            yield Mark(at, "strike", text, str(event.get("call") or ""))
        elif name in _LASTING or (source == "world" and "call" not in event and name not in _ORDINARY):
            if name in _LASTING.values():
                continue
            whom = names_of(event)
            until = _end_of(events, place, name, whom)
            yield Mark(at, name, " ".join([name.replace("_", " "), *whom]), until=until)
        elif source == "limiter" and name in ("resized", "expired", "fenced"):
            yield Mark(at, name, f"permit {name}" if name != "resized" else "limit resized")


def _end_of(events: Sequence[Event], place: int, name: str, whom: list[str]) -> float | None:
    ending = _LASTING.get(name)
    if ending is None:
        return None
    later = (event for event in events[place + 1 :] if event["event"] == ending and names_of(event) == whom)
    return next((float(event["at"]) for event in later), float(events[-1]["at"]))
