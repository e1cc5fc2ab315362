"""A run over time: requests in flight, calls waiting, the limit, faults and kills."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

from sfusion.harness.lab.journal import Event, Journal
from sfusion.harness.lab.promises.story import Story
from sfusion_tools.record import Call, spans_of

Change: TypeAlias = tuple[float, int]


@dataclass(frozen=True, slots=True)
class Steps:
    """A step function: ``values[i]`` from ``times[i]`` on."""

    times: tuple[float, ...] = ()
    values: tuple[int, ...] = ()

    @property
    def peak(self) -> int:
        """The highest value."""
        return max(self.values, default=0)


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that disturbed the run, such as a fault, a kill or a crash; ``until`` is set if it lasted a while."""

    at: float
    kind: str
    text: str
    call: str = ""
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run over time. ``in_flight`` counts attempts at the clients, or at the server if the clients record none."""

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
    "limiter_paused": "limiter_resumed",
}
"""Events that last, with the events that end them."""
_ORDINARY = frozenset(
    {"began", "ended", "killed", "log", "looked_inside", "rollout_started", "rollout_ended", "scheduled", "step_ended"}
)
"""World events that are not marks. ``killed`` is repeated by the event of what died."""


def build_timeline(events: Iterable[Event], calls: Sequence[Call] | None = None) -> Timeline:
    """The timeline of a journal; pass its ``calls`` if they are known already."""
    listed = list(events)
    calls = Story(Journal({}, listed)).records if calls is None else calls
    times = [float(event["at"]) for event in listed]
    start, end = min(times, default=0.0), max(times, default=0.0)
    at_server = _steps(_in_flight(listed, "arrived", ("answered", "unanswered")))
    has_clients = any(event["event"] == "attempt_started" for event in listed)
    return Timeline(
        start,
        end,
        _steps(_in_flight(listed, "attempt_started", ("attempt_ended",))) if has_clients else at_server,
        at_server,
        _steps(sorted(_waits(calls))),
        _limit(listed),
        tuple(_marks(listed)),
    )


def _steps(changes: Iterable[Change]) -> Steps:
    """Add up changes in order.

    A rise and fall within one instant stays as a step of zero length, since a limit may be exceeded there. A fall and
    rise, as when a permit passes to the next caller, is dropped.
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


def _waits(calls: Iterable[Call]) -> Iterable[Change]:
    for call in calls:
        for span in spans_of(call):
            if span.kind == "waiting" and span.end > span.start:
                yield span.start, 1
                yield span.end, -1


def _in_flight(events: Iterable[Event], begin: str, ends: Sequence[str]) -> Iterable[Change]:
    """Attempts at the clients, or requests at the server; a worker that dies ends its attempts."""
    in_flight: dict[tuple[Any, Any], Any] = {}
    for event in events:
        attempt, at, name = (event.get("call"), event.get("attempt")), float(event["at"]), event["event"]
        if name == begin and attempt not in in_flight:
            in_flight[attempt] = event.get("worker")
            yield at, 1
        elif name in ends and attempt in in_flight:
            del in_flight[attempt]
            yield at, -1
        elif name == "worker_died":
            for lost in [one for one, worker in in_flight.items() if worker == event.get("worker")]:
                del in_flight[lost]
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
    for index, event in enumerate(events):
        source, name, at = event.get("source"), str(event["event"]), float(event["at"])
        if source in ("server", "engine") and name == "strike":
            what = str(event.get("kind") or "")
            text = f"{event.get('rule') or what}: {what} in phase {event.get('phase')}"
            yield Mark(at, "strike", text, str(event.get("call") or ""))
        elif name in _LASTING or (source == "world" and "call" not in event and name not in _ORDINARY):
            if name in _LASTING.values():
                continue
            names = _names(event)
            text = ": ".join(filter(None, (name.replace("_", " "), " ".join(names))))
            yield Mark(at, name, text, until=_end_of(events, index, name, names))
        elif source == "limiter" and name in ("resized", "expired", "fenced"):
            yield Mark(at, name, f"permit {name}" if name != "resized" else "limit resized")


def _names(event: Event) -> list[str]:
    """The workers, nodes or sandboxes that an event is about."""
    found: list[str] = []
    for key in ("target", "worker", "workers", "node", "sandbox"):
        value = event.get(key)
        found.extend([value] if isinstance(value, str) else [str(one) for one in value or ()])
    return found


def _end_of(events: Sequence[Event], index: int, name: str, names: list[str]) -> float | None:
    ending = _LASTING.get(name)
    if ending is None:
        return None
    later = (event for event in events[index + 1 :] if event["event"] == ending and _names(event) == names)
    return next((float(event["at"]) for event in later), float(events[-1]["at"]))
