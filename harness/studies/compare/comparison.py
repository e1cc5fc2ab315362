"""What changed from one recorded run to another. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from ...core.events import ReturnedEvent
from ...core.figures import RunFigures, figures_of
from ...core.journal import Event, Journal
from ...core.run_events import RunEvents
from ...lab.promises import Verdict

_RANKS = {"held": 0, "not_applicable": 0, "unknown": 1, "broken": 2}
FIGURES = (
    "throughput",
    "seconds",
    "p50",
    "p95",
    "p99",
    "wait_p50",
    "wait_p95",
    "attempts",
    "refused",
    "wasted",
)
CONTEXT = 3
"""Events shown before the first that differs (chosen)."""


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run as it was read from its folder."""

    name: str
    settings: Mapping[str, Any]
    """The scenario as plain data."""
    journal: Journal
    verdicts: Sequence[Verdict]

    @property
    def deterministic(self) -> bool:
        return bool(self.journal.header["world"] == "sim")


@dataclass(frozen=True, slots=True)
class RunChange:
    """Something that was one thing and is another; None where it was not there."""

    what: str
    before: Any
    after: Any
    note: str = ""


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first event that differs, with the events before it; None where a journal had ended."""

    number: int
    """Counted from 1, without the header."""
    before: Event | None
    after: Event | None
    context: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class RunComparison:
    before: RecordedRun
    after: RecordedRun
    same_journal: bool
    settings: tuple[RunChange, ...]
    promises: tuple[RunChange, ...]
    outcomes: tuple[RunChange, ...]
    """How many calls ended with each outcome, where the number changed."""
    figures: tuple[RunChange, ...]
    calls: tuple[RunChange, ...]
    """The outcome of each call that ended differently."""
    texts: tuple[RunChange, ...]
    """What the model reads, for each call where that changed."""
    first: FirstDifference | None
    """None if the events are the same, or a run was in real time, where they are never the same."""

    @property
    def worse(self) -> bool:
        """Does a promise hold less than before?"""
        return any(rank_change(change) > 0 for change in self.promises)

    @property
    def better(self) -> bool:
        """Does a promise hold more than before, and none less?"""
        return not self.worse and any(rank_change(change) < 0 for change in self.promises)

    @property
    def same(self) -> bool:
        """Are settings, verdicts and journal the same?"""
        return self.same_journal and not self.settings and not self.promises

    @property
    def sentence(self) -> str:
        """The answer in one line."""
        if self.same:
            return "the same journal and the same verdicts"
        worse = [change.what for change in self.promises if rank_change(change) > 0]
        better = [change.what for change in self.promises if rank_change(change) < 0]
        otherwise = [change.what for change in self.promises if change.before == change.after]
        said = []
        if worse:
            said.append(f"worse: {', '.join(worse)}")
        if better:
            said.append(f"better: {', '.join(better)}")
        if otherwise:
            said.append(f"broken in another way: {', '.join(otherwise)}")
        if not said:
            said.append("the same verdicts")
        if self.calls:
            made = len(RunEvents(self.after.journal).calls)
            said.append(f"{len(self.calls)} of {made} calls ended differently")
        else:
            said.append("every call ended as before")
        return "; ".join(said)


def rank_change(change: RunChange) -> int:
    """Above 0 if a promise got worse. One that is no longer checked counts as unknown, a new one
    as if it had held."""
    return _RANKS.get(change.after, 1) - (
        0 if change.before is None else _RANKS.get(change.before, 1)
    )


def compare_runs(before: RecordedRun, after: RecordedRun) -> RunComparison:
    """Compare two runs; they need not be of the same scenario."""
    old = figures_of(before.journal)
    new = figures_of(after.journal)
    runs = RunEvents(before.journal), RunEvents(after.journal)
    ends = [{call.call: call.kind for call in run.records} for run in runs]
    texts = [{call: _text(events.returned) for call, events in run.calls.items()} for run in runs]
    exact = before.deterministic and after.deterministic
    return RunComparison(
        before,
        after,
        same_journal=before.journal.events == after.journal.events,
        settings=tuple(_different(dict(_flat(before.settings)), dict(_flat(after.settings)))),
        promises=tuple(_promise_changes(before, after)),
        outcomes=tuple(_different(old.outcomes, new.outcomes, missing=0)),
        figures=tuple(_different(_numbers(old), _numbers(new))),
        calls=tuple(_different(*ends)),
        texts=tuple(_different(*texts)),
        first=_first_difference(before.journal.events, after.journal.events) if exact else None,
    )


def _promise_changes(before: RecordedRun, after: RecordedRun) -> Iterator[RunChange]:
    """Yield the promises whose state changed, and those that are broken in another way than
    before."""
    old, new = ({verdict.promise: verdict for verdict in run.verdicts} for run in (before, after))
    for name in dict.fromkeys((*old, *new)):
        was = old.get(name)
        now = new.get(name)
        if was is None or now is None or was.state != now.state:
            yield RunChange(
                name, was and was.state, now and now.state, "" if now is None else now.sentence
            )
        elif (
            now.state == "broken" and was.how != now.how and was.how.kind
        ):  # older files do not say how
            yield RunChange(name, was.state, now.state, now.sentence)


def _different(
    before: Mapping[str, Any], after: Mapping[str, Any], missing: Any = None
) -> Iterator[RunChange]:
    for key in dict.fromkeys((*before, *after)):
        was = before.get(key, missing)
        now = after.get(key, missing)
        if was != now:
            yield RunChange(str(key), was, now)


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested data by their dotted paths."""
    parts: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, list):
        parts = enumerate(value)
    else:
        yield path, value
        return
    if not value:
        yield path, value
    for key, part in parts:
        yield from _flat(part, f"{path}.{key}" if path else str(key))


def _numbers(figures: RunFigures) -> dict[str, float]:
    return {name: getattr(figures, name) for name in FIGURES}


def _text(returned: ReturnedEvent | None) -> str | None:
    return None if returned is None else f"{returned.get('text') or ''}{returned.get('tail') or ''}"


def _first_difference(before: Sequence[Event], after: Sequence[Event]) -> FirstDifference | None:
    for place, (old, new) in enumerate(zip_longest(before, after)):
        if old != new:
            return FirstDifference(
                place + 1, old, new, tuple(before[max(0, place - CONTEXT) : place])
            )
    return None
