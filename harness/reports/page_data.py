"""The data that the page of a run is drawn from: its calls and its timeline, compact and safe in a script element."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sfusion.harness.lab.journal import Event, Journal
from sfusion.harness.lab.promises.story import Story
from sfusion.harness.reports.run_report import RunReport
from sfusion.harness.reports.timeline import Steps, Timeline, build_timeline
from sfusion_tools.record import KINDS, Call, spans_of

SPANS = ("waiting", "attempt", "running", "pause")
_OWN_COLUMNS = frozenset({"at", "source", "event", "call", "attempt", "worker"})


Row = tuple[float, str, str, int, dict[str, Any]]
"""A line of what the page tells about a call: time, source, what happened, attempt, and further facts."""


def page_data(run: RunReport) -> dict[str, Any]:
    """Everything the page of a run draws."""
    story = Story(Journal({}, list(run.events)))

    def rows(call: Call) -> list[Row]:
        return [_event_row(event) for event in story.calls[call.call].events]

    timeline = build_timeline(run.events, story.records)
    if not timeline.limit.times:  # no limiter, but perhaps a promise that states a limit
        verdicts = [one for one in run.verdicts if one.promise == "in_flight_within_limit"]
        promised = [one.how.details["limit"] for one in verdicts if "limit" in one.how.details]
        timeline = replace(timeline, limit=Steps((timeline.start,) * len(promised[:1]), tuple(promised[:1])))
    return timeline_data(story.records, timeline, rows)


def _event_row(event: Event) -> Row:
    rest = {key: value for key, value in event.items() if key not in _OWN_COLUMNS and value is not None}
    return float(event["at"]), event["source"], event["event"], event.get("attempt") or 0, rest


def timeline_data(calls: Sequence[Call], timeline: Timeline, rows: Callable[[Call], Iterable[Row]]) -> dict[str, Any]:
    """Calls and a timeline as a page draws them; ``rows`` returns what is told about a call.

    Lists and indexes instead of objects and words keep 10,000 calls within a few MB.
    """
    words = _Words()
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
            [_time(mark.at), mark.kind, mark.text, mark.call, None if mark.until is None else _time(mark.until)]
            for mark in timeline.marks
        ],
        "calls": [_call(call, numbers, words, rows(call)) for call in calls],
        "words": words.listed,
    }


def embed(value: object) -> str:
    """JSON that is safe in a script element: no tag, comment or entity can start in it, whatever the texts are."""
    encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
    try:
        text = encode(value)
    except (TypeError, ValueError):  # rare, and converting every value is slow
        text = encode(_plain(value))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


class _Words:
    """Numbers the words that occur often."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, word: object) -> int:
        return self._numbers.setdefault(str(word), len(self._numbers))

    @property
    def listed(self) -> list[str]:
        return list(self._numbers)


def _call(call: Call, workers: Mapping[str, int], words: _Words, rows: Iterable[Row]) -> list[Any]:
    spans: list[Any] = []
    for span in spans_of(call):
        outcome = KINDS.index(span.outcome) if span.outcome else -1
        spans += [SPANS.index(span.kind), _time(span.start), _time(span.end), span.attempt, outcome, span.status or 0]
    told = []
    for at, source, event, attempt, rest in rows:
        row: list[Any] = [_time(at), words(source), words(event), attempt]
        told.append([*row, rest] if rest else row)
    return [
        call.call,
        workers[call.worker],
        _time(call.began),
        _time(call.ended),
        KINDS.index(call.kind),
        len(call.attempts),
        sum(one.may_have_run for one in call.attempts),
        sum(one.fault is not None for one in call.attempts),
        spans,
        told,
    ]


def _series(steps: Steps) -> list[list[float]]:
    return [[_time(at) for at in steps.times], list(steps.values)]


def _time(at: float) -> float:
    return round(at, 6)


def _natural(name: str) -> list[tuple[int, str]]:
    """A sort key that puts worker-10 after worker-9."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _plain(value: Any) -> Any:
    """The value, with whatever JSON cannot represent converted to text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | bool | None) else str(value)
