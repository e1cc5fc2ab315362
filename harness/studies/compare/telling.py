"""A comparison in words, for the terminal, the page and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sfusion.harness.lab.journal import Event
from sfusion.harness.studies.compare.comparison import FirstDifference, RunChange, RunComparison

SHOWN = 5
"""Changes of one kind that are shown; JSON has all of them."""
_NAMES = {
    "throughput": "calls ok per second",
    "seconds": "time of all calls",
    "p50": "call p50",
    "p95": "call p95",
    "p99": "call p99",
    "wait_p50": "wait for a permit p50",
    "wait_p95": "wait for a permit p95",
}
_COUNTS = ("throughput", "attempts", "refused", "wasted")


def sections(one: RunComparison) -> list[tuple[str, list[str]]]:
    """What changed, as headings with lines; without what did not."""
    if one.same:
        return []
    found = [
        ("settings", _listed(one.settings)),
        ("promises", [f"{_arrow(change)}{f': {change.note}' if change.note else ''}" for change in one.promises]),
        ("outcomes", [_arrow(change) for change in one.outcomes]),
        ("figures", [_figure(change) for change in one.figures]),
        ("calls that ended differently", _listed(one.calls)),
        ("texts that the model reads", _listed(one.texts)),
        ("first event that differs", _first(one.first) if one.first is not None else []),
    ]
    if one.first is None and not one.same_journal:
        found[-1] = ("events", ["not compared one by one: a run in real time never repeats its events"])
    return [(heading, lines) for heading, lines in found if lines]


def as_dict(one: RunComparison) -> dict[str, Any]:
    kinds = ("settings", "promises", "outcomes", "figures", "calls", "texts")
    return {
        "before": one.before.name,
        "after": one.after.name,
        "same": one.same,
        "worse": one.worse,
        "sentence": one.sentence,
        **{kind: [asdict(change) for change in getattr(one, kind)] for kind in kinds},
        "first": None if one.first is None else asdict(one.first),
    }


def _listed(changes: Sequence[RunChange]) -> list[str]:
    lines = [_arrow(change) for change in changes[:SHOWN]]
    return [*lines, f"and {len(changes) - SHOWN} more"] if len(changes) > SHOWN else lines


def _arrow(change: RunChange) -> str:
    return f"{change.what}: {_value(change.before)} -> {_value(change.after)}"


def _value(value: Any) -> str:
    if value is None:
        return "(none)"
    text = value if isinstance(value, str) and value.isprintable() and value else json.dumps(value, default=str)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _figure(change: RunChange) -> str:
    before, after = float(change.before), float(change.after)
    share = f" ({(after - before) / before:+.1%})" if before else ""
    unit = "" if change.what in _COUNTS else " s"
    return f"{_NAMES.get(change.what, change.what)}: {before:.4g}{unit} -> {after:.4g}{unit}{share}"


def _first(first: FirstDifference) -> list[str]:
    return [
        f"number {first.number}",
        *(f"  {_event(event)}" for event in first.context),
        f"- {_event(first.before)}",
        f"+ {_event(first.after)}",
    ]


def _event(event: Event | None) -> str:
    if event is None:
        return "(the journal ends)"
    rest = {key: value for key, value in event.items() if key not in ("at", "source", "event")}
    facts = " ".join(f"{key}={_value(value)}" for key, value in rest.items())
    return f"{event['at']:.6f} {event['source']} {event['event']} {facts}".rstrip()
