"""A run over time: requests in flight, calls waiting, the limit, faults and kills.

``page_data`` makes of it and of the calls what the page of a run is drawn from, compact and safe in
a script element.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby
from typing import Any, TypeAlias

from sfusion_tools.record import KINDS, Call, spans_of

from ..core.journal import Event, Journal
from ..core.run_events import RunEvents
from .run_report import RunReport

Change: TypeAlias = tuple[float, int]


@dataclass(frozen=True, slots=True)
class Steps:
    """A step function: ``values[i]`` from ``times[i]`` on."""

    times: tuple[float, ...] = ()
    values: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that disturbed the run, such as a fault, a kill or a crash; ``until`` is set if it
    lasted a while."""

    at: float
    kind: str
    text: str
    call: str = ""
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run over time. ``in_flight`` counts attempts at the clients, or at the server if the
    clients record none."""

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
    {
        "began",
        "ended",
        "killed",
        "log",
        "looked_inside",
        "rollout_started",
        "rollout_ended",
        "scheduled",
        "step_ended",
    }
)
"""World events that are not marks. ``killed`` is repeated by the event of what died."""


def build_timeline(events: Iterable[Event], calls: Sequence[Call] | None = None) -> Timeline:
    """The timeline of a journal; pass its ``calls`` if they are known already."""
    listed = list(events)
    calls = RunEvents(Journal({}, listed)).records if calls is None else calls
    times = [float(event["at"]) for event in listed]
    start = min(times, default=0.0)
    end = max(times, default=0.0)
    at_server = _steps(_in_flight(listed, "arrived", ("answered", "unanswered")))
    has_clients = any(event["event"] == "attempt_started" for event in listed)
    return Timeline(
        start=start,
        end=end,
        in_flight=_steps(_in_flight(listed, "attempt_started", ("attempt_ended",)))
        if has_clients
        else at_server,
        at_server=at_server,
        waiting=_steps(sorted(_waits(calls))),
        limit=_limit(listed),
        marks=tuple(_marks(listed)),
    )


def _steps(changes: Iterable[Change]) -> Steps:
    """Add up changes in order.

    A rise and fall within one instant stays as a step of zero length, since a limit may be exceeded
    there. A fall and rise, as when a permit passes to the next caller, is dropped.
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
        attempt = (event.get("call"), event.get("attempt"))
        at = float(event["at"])
        name = event["event"]
        if name == begin and attempt not in in_flight:
            in_flight[attempt] = event.get("worker")
            yield at, 1
        elif name in ends and attempt in in_flight:
            del in_flight[attempt]
            yield at, -1
        elif name == "worker_died":
            for lost in [
                call for call, worker in in_flight.items() if worker == event.get("worker")
            ]:
                del in_flight[lost]
                yield at, -1


def _limit(events: Iterable[Event]) -> Steps:
    changes: list[tuple[float, int]] = []
    for event in events:
        if (event.get("source"), event["event"]) in (("world", "began"), ("limiter", "resized")):
            value = next(
                (event[key] for key in ("limit", "rate_limit") if event.get(key) is not None), None
            )
            if value is not None and (not changes or changes[-1][1] != value):
                changes.append((float(event["at"]), int(value)))
    return Steps(tuple(at for at, _ in changes), tuple(value for _, value in changes))


def _marks(events: Sequence[Event]) -> Iterable[Mark]:
    """Yield what is marked on the time axis: faults, disturbances, and changes of the limiter."""
    for index, event in enumerate(events):
        source = event.get("source")
        name = str(event["event"])
        at = float(event["at"])
        if source in ("server", "engine") and name == "strike":
            yield _strike(at, event)
        elif _is_disturbance(event):
            names = _names(event)
            text = ": ".join(filter(None, (name.replace("_", " "), " ".join(names))))
            yield Mark(at, name, text, until=_end_of(events, index, name, names))
        elif source == "limiter" and name in ("resized", "expired", "fenced"):
            yield Mark(at, name, f"permit {name}" if name != "resized" else "limit resized")


def _strike(at: float, event: Event) -> Mark:
    what = str(event.get("kind") or "")
    text = f"{event.get('rule') or what}: {what} in phase {event.get('phase')}"
    return Mark(at, "strike", text, str(event.get("call") or ""))


def _is_disturbance(event: Event) -> bool:
    """Was something done to the world, other than the end of what lasted until then?"""
    name = str(event["event"])
    if name in _LASTING.values():
        return False
    is_of_world = event.get("source") == "world" and "call" not in event
    return name in _LASTING or (is_of_world and name not in _ORDINARY)


def _names(event: Event) -> list[str]:
    """The workers, nodes or sandboxes that an event is about."""
    found: list[str] = []
    for key in ("target", "worker", "workers", "node", "sandbox"):
        value = event.get(key)
        found.extend([value] if isinstance(value, str) else [str(item) for item in value or ()])
    return found


def _end_of(events: Sequence[Event], index: int, name: str, names: list[str]) -> float | None:
    ending = _LASTING.get(name)
    if ending is None:
        return None
    later = (
        event
        for event in events[index + 1 :]
        if event["event"] == ending and _names(event) == names
    )
    return next((float(event["at"]) for event in later), float(events[-1]["at"]))


SPANS = ("waiting", "attempt", "running", "pause")
_OWN_COLUMNS = frozenset({"at", "source", "event", "call", "attempt", "worker"})


Row = tuple[float, str, str, int, dict[str, Any]]
"""A line of what the page tells about a call: time, source, what happened, attempt, and further
facts."""


def page_data(run: RunReport) -> dict[str, Any]:
    """Everything the page of a run draws."""
    events = RunEvents(Journal({}, list(run.events)))

    def rows(call: Call) -> list[Row]:
        return [_event_row(event) for event in events.calls[call.call].events]

    timeline = build_timeline(run.events, events.records)
    if not timeline.limit.times:  # no limiter, but perhaps a promise that states a limit
        verdicts = [
            verdict for verdict in run.verdicts if verdict.promise == "in_flight_within_limit"
        ]
        promised = [
            verdict.how.details["limit"] for verdict in verdicts if "limit" in verdict.how.details
        ]
        timeline = replace(
            timeline, limit=Steps((timeline.start,) * len(promised[:1]), tuple(promised[:1]))
        )
    return timeline_data(events.records, timeline, rows)


def _event_row(event: Event) -> Row:
    rest = {
        key: value for key, value in event.items() if key not in _OWN_COLUMNS and value is not None
    }
    return float(event["at"]), event["source"], event["event"], event.get("attempt") or 0, rest


def timeline_data(
    calls: Sequence[Call], timeline: Timeline, rows: Callable[[Call], Iterable[Row]]
) -> dict[str, Any]:
    """Calls and a timeline as a page draws them; ``rows`` returns what is told about a call.

    Lists and indexes instead of objects and words keep 10,000 calls within a few MB.
    """
    words: dict[str, int] = defaultdict(count().__next__)  # numbers those that occur
    workers = sorted({call.worker for call in calls}, key=_natural)
    numbers = {worker: number for number, worker in enumerate(workers)}
    return {
        "outcomes": list(KINDS),
        "workers": workers,
        "start": _time(timeline.start),
        "end": _time(timeline.end),
        "inFlight": _series(timeline.in_flight),
        "atServer": _series(timeline.at_server),
        "waiting": _series(timeline.waiting),
        "limit": _series(timeline.limit),
        "marks": [
            [
                _time(mark.at),
                mark.kind,
                mark.text,
                mark.call,
                None if mark.until is None else _time(mark.until),
            ]
            for mark in timeline.marks
        ],
        "calls": [_call(call, numbers, words, rows(call)) for call in calls],
        "words": list(words),
    }


def embed(value: object) -> str:
    """JSON that is safe in a script element: no tag, comment or entity can start in it, whatever
    the texts are."""
    encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
    try:
        text = encode(value)
    except (TypeError, ValueError):  # rare, and converting every value is slow
        text = encode(_plain(value))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _call(
    call: Call, workers: Mapping[str, int], words: dict[str, int], rows: Iterable[Row]
) -> list[Any]:
    spans: list[Any] = []
    for span in spans_of(call):
        outcome = KINDS.index(span.outcome) if span.outcome else -1
        spans += [
            SPANS.index(span.kind),
            _time(span.start),
            _time(span.end),
            span.attempt,
            outcome,
            span.status or 0,
        ]
    told = []
    for at, source, event, attempt, rest in rows:
        row: list[Any] = [_time(at), words[str(source)], words[str(event)], attempt]
        told.append([*row, rest] if rest else row)
    return [
        call.call,
        workers[call.worker],
        _time(call.began),
        _time(call.ended),
        KINDS.index(call.kind),
        len(call.attempts),
        sum(attempt.may_have_run for attempt in call.attempts),
        sum(attempt.fault is not None for attempt in call.attempts),
        spans,
        told,
    ]


def _series(steps: Steps) -> list[list[float]]:
    return [[_time(at) for at in steps.times], list(steps.values)]


def _time(at: float) -> float:
    return round(at, 6)


def _natural(name: str) -> list[tuple[int, str]]:
    """A sort key that puts worker-10 after worker-9."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)
    ]


def _plain(value: Any) -> Any:
    """The value, with whatever JSON cannot represent converted to text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | bool | None) else str(value)
