"""The data that the page of a run is drawn from: its calls and its timeline, compact and safe in a script element."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sfusion.harness.reports.calls import OUTCOMES, CallTimeline, call_timelines
from sfusion.harness.reports.run_report import RunReport
from sfusion.harness.reports.timeline import Steps, Timeline, build_timeline

SPANS = ("waiting", "attempt", "running", "pause")
_OWN_COLUMNS = frozenset({"at", "source", "event", "call", "attempt", "worker"})


def page_data(run: RunReport) -> dict[str, Any]:
    """Everything the page of a run draws."""
    calls = call_timelines(run.events)
    return timeline_data(calls, build_timeline(run.events, calls))


def timeline_data(
    calls: Sequence[CallTimeline], timeline: Timeline, outcomes: Sequence[str] = OUTCOMES
) -> dict[str, Any]:
    """Calls and a timeline as a page draws them.

    Lists and indexes instead of objects and words keep 10,000 calls within a few MB.
    """
    words = _Words()
    workers = sorted({call.worker for call in calls}, key=_natural)
    numbers = {worker: number for number, worker in enumerate(workers)}
    return {
        "outcomes": list(outcomes),
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
        "calls": [_call(call, numbers, words, outcomes) for call in calls],
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


def _call(call: CallTimeline, workers: Mapping[str, int], words: _Words, outcomes: Sequence[str]) -> list[Any]:
    spans: list[Any] = []
    for span in call.spans:
        spans += [
            SPANS.index(span.kind),
            _time(span.start),
            _time(span.end),
            span.attempt,
            _outcome(span.outcome, outcomes),
            span.status or 0,
        ]
    rows = []
    for event in call.events:
        rest = {key: value for key, value in event.items() if key not in _OWN_COLUMNS and value is not None}
        row: list[Any] = [_time(float(event["at"])), words(event.get("source")), words(event["event"])]
        row.append(event.get("attempt") or 0)
        rows.append([*row, rest] if rest else row)
    return [
        call.call,
        workers[call.worker],
        _time(call.start),
        _time(call.end),
        _outcome(call.outcome, outcomes),
        call.attempts,
        call.executions,
        call.strikes,
        spans,
        rows,
    ]


def _outcome(name: str, outcomes: Sequence[str]) -> int:
    return outcomes.index(name) if name in outcomes else -1


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
