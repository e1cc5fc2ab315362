"""What the page of a run is drawn from: its stories and its timeline in a compact form, safe in a script element."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from sfusion.harness.reports.model import Run
from sfusion.harness.reports.stories import OUTCOMES, Story, stories
from sfusion.harness.reports.timeline import Steps, build_timeline

SPANS = ("waiting", "attempt", "running", "pause")
_OWN_COLUMNS = frozenset({"at", "source", "event", "call", "attempt", "worker"})


def payload(run: Run) -> dict[str, Any]:
    """Everything the page draws. Rows instead of objects, indexes instead of words: 10,000 calls stay a few MB."""
    told = stories(run.events)
    timeline = build_timeline(run.events, told)
    words = _Words()
    workers = sorted({story.worker for story in told}, key=_natural)
    place = {worker: index for index, worker in enumerate(workers)}
    return {
        "outcomes": list(OUTCOMES),
        "spans": list(SPANS),
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
        "calls": [_call(story, place, words) for story in told],
        "words": words.listed,
    }


def embed(value: object) -> str:
    """JSON that can stand in a script element whatever texts it holds: no tag, comment or entity can begin in it."""
    encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
    try:
        text = encode(value)
    except (TypeError, ValueError):  # a foreign journal may hold what JSON cannot; looking at every value is slow
        text = encode(_plain(value))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


class _Words:
    """Gives every repeated word a number."""

    def __init__(self) -> None:
        self.listed: list[str] = []
        self._places: dict[str, int] = {}

    def __call__(self, word: object) -> int:
        text = str(word)
        place = self._places.get(text)
        if place is None:
            place = self._places[text] = len(self.listed)
            self.listed.append(text)
        return place


def _call(story: Story, workers: Mapping[str, int], words: _Words) -> list[Any]:
    spans: list[Any] = []
    for span in story.spans:
        spans += [
            SPANS.index(span.kind),
            _time(span.start),
            _time(span.end),
            span.attempt,
            _outcome(span.outcome),
            span.status or 0,
        ]
    rows = []
    for event in story.events:
        rest = {key: value for key, value in event.items() if key not in _OWN_COLUMNS and value is not None}
        row: list[Any] = [_time(float(event["at"])), words(event.get("source")), words(event["event"])]
        row.append(event.get("attempt") or 0)
        rows.append([*row, rest] if rest else row)
    return [
        story.call,
        workers[story.worker],
        _time(story.start),
        _time(story.end),
        _outcome(story.outcome),
        story.attempts,
        story.executions,
        story.strikes,
        spans,
        rows,
    ]


def _outcome(name: str) -> int:
    return OUTCOMES.index(name) if name in OUTCOMES else -1


def _series(steps: Steps) -> list[list[float]]:
    return [[_time(at) for at in steps.times], list(steps.values)]


def _time(at: float) -> float:
    return round(at, 6)


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort worker-10 behind worker-9."""
    parts: list[str] = [""]
    for sign in name:
        if parts[-1] and parts[-1][-1].isdigit() != sign.isdigit():
            parts.append("")
        parts[-1] += sign
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _plain(value: Any) -> Any:
    """The same value without the numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | bool | None) else str(value)
