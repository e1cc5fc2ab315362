"""What a run showed: sequences of events of each call and each permit, and which promises met which faults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sfusion.harness.lab.journal import Event, Journal
from sfusion.harness.lab.promises import Verdict

_LENGTH = 3
_DETAILS = ("kind", "phase", "status", "outcome", "raised", "level", "ended_by")
"""Keys that make an event another behaviour; ids, times and texts do not."""


def behaviour(journal: Journal, verdicts: Iterable[Verdict]) -> frozenset[str]:
    """Return what a run showed, as short texts."""
    sequences: dict[str, list[str]] = {}
    strikes: set[str] = set()
    for event in journal.events:
        token = _token(event)
        for key in ("call", "permit", "rollout"):
            if (name := event.get(key)) is not None:
                sequences.setdefault(f"{key} {name}", [key]).append(token)
        if event["source"] == "world" and "call" not in event:
            sequences.setdefault("world", ["world"]).append(token)
        if event["event"] == "strike":
            strikes.add(f"{event.get('kind', 'engine')}@{event.get('phase', '-')}")
    found = {gram for tokens in sequences.values() for gram in _grams(tokens)}
    found |= {f"promise {one.promise} {one.state} {strike}" for one in verdicts for strike in strikes or {"-"}}
    return frozenset(found)


def _token(event: Event) -> str:
    details = [str(event[key]) for key in _DETAILS if event.get(key) is not None]
    return ":".join([str(event["event"]), *details])


def _grams(tokens: Sequence[str]) -> Iterator[str]:
    for start in range(max(1, len(tokens) - _LENGTH + 1)):
        yield " ".join(tokens[start : start + _LENGTH])


def strikes_of(journal: Journal) -> frozenset[tuple[str, str]]:
    """Return the faults that struck, each with its phase."""
    return frozenset(
        (one["kind"], one["phase"]) for one in journal.events if one["event"] == "strike" and "kind" in one
    )
