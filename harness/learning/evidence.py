"""Which calls of a dumped trajectory were lost, by facts: an event log, what a dump says, or
texts that tools wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sfusion_tools.outcome import OUTCOMES, Outcome
from sfusion_tools.record import Call

from ...fakes.faults.pattern import PatternSearches
from ..core.logs.dump_records import MOST_CALLS, outcome_of_text, tool_texts

EVENTS = "event log"
REQUESTS = "requests file"
KEY = "key of the dump"
PATTERN = "--lost-pattern"
TEXT = "known text"
"""What a lost call is recognised by; the first that says so counts."""
LOST_KEYS = ("lost_calls", "infrastructure_failures", "infrastructure")
"""Numbers of lost calls: as docs/verl.md puts them into a dump, as our requests file has them,
as the tool's extras."""


@dataclass(frozen=True, slots=True)
class CallsOfSample:
    """How the tool calls of one sample ended."""

    calls: int = 0
    lost: int = 0
    last_lost: bool = False
    unclear: bool = False
    """The model read an empty text or one that stands for anything, and nothing else says what
    happened."""
    source: str = ""
    """What the lost calls were recognised by."""
    outcomes: tuple[str, ...] = ()
    """How the lost calls ended, as far as that is known."""


@dataclass
class Evidence:
    """What is known beside the dump, and how much of it was used."""

    pattern: str | None = None
    lost_key: str | None = None
    used: Counter[str] = field(default_factory=Counter)
    """Samples with a score by what their lost calls were recognised by."""
    logged_calls: int = 0
    unnamed_calls: int = 0
    """Calls of the event log without a trajectory."""
    matched: int = 0
    """Samples with calls in the event log."""
    shared: int = 0
    """Samples with the id of another one before them, so that the event log cannot tell them
    apart."""
    _lost: dict[str, list[str]] = field(default_factory=dict)
    """How the lost calls of each trajectory of the event log ended."""
    _last: dict[str, tuple[float, bool]] = field(default_factory=dict)
    """When the last call of each trajectory began, and whether it was lost."""
    _met: set[str] = field(default_factory=set)
    _searches: PatternSearches = field(default_factory=PatternSearches)

    def add_log(self, calls: Iterable[Call]) -> None:
        """Keep which trajectories lost calls, and whether their last one was. The order of the
        lines does not count."""
        for call in calls:
            if call.source != "client":
                continue
            self.logged_calls += 1
            if not call.trajectory:
                self.unnamed_calls += 1
                continue
            lost = call.outcome is not None and call.outcome.is_infrastructure
            last = call.began, lost
            self._last[call.trajectory] = max(self._last.get(call.trajectory, last), last)
            if lost and call.outcome is not None:
                self._lost.setdefault(call.trajectory, []).append(call.outcome.value)

    def of(
        self, record: Mapping[str, Any], request: Mapping[str, Any], output: str, id: str
    ) -> CallsOfSample:
        """Return how the calls of a sample ended, by the first evidence that tells."""
        if id in self._last:
            self.matched += 1
            self.shared += id in self._met
            self._met.add(id)
        told = self._told(output)
        calls = max(len(told.ends), _whole(request.get("calls")), _whole(record.get("calls")))
        listed = _listed(record)
        return (
            self._by_events(id, calls)
            or self._by_request(request, told, calls)
            or self._by_list(listed, calls)
            or self._by_key(record, told, calls)
            or self._by_flags(told.by_pattern, PATTERN, told, calls)
            or self._by_flags(told.said, TEXT, told, calls)
            or CallsOfSample(calls, unclear=told.is_unclear and not request and not listed)
        )

    def _told(self, output: str) -> _Told:
        """Read the tool messages of a sample."""
        texts = tool_texts(output)
        return _Told(
            ends=[outcome_of_text(text) if text.strip() else None for text in texts],
            by_pattern=[
                self.pattern is not None and self._searches.matches(self.pattern, text)
                for text in texts
            ],
        )

    def _by_events(self, id: str, calls: int) -> CallsOfSample | None:
        """Look into the event log."""
        ended = self._lost.get(id)
        if ended is None:
            return None
        last = self._last[id][1]
        return self._found(calls, len(ended), last, EVENTS, outcomes=ended)

    def _by_request(
        self, request: Mapping[str, Any], told: _Told, calls: int
    ) -> CallsOfSample | None:
        """Look at the counts that a rollout dumps."""
        count = _whole(request.get("infrastructure_failures"))
        if not count:
            return None
        # The counts have no order; the texts have, and dumps since 2026-11 say it.
        last = request.get("last_call_lost", not told.ends or told.said[-1])
        outcomes = _named(request.get("outcomes"))
        return self._found(calls, count, bool(last), REQUESTS, outcomes=outcomes)

    def _by_list(self, listed: Sequence[Outcome | None], calls: int) -> CallsOfSample | None:
        """Look at the outcomes that the tool's extras list."""
        if not any(listed):
            return None
        outcomes = [outcome.value for outcome in listed if outcome is not None]
        last = listed[-1] is not None
        return self._found(calls, len(outcomes), last, KEY, outcomes=outcomes)

    def _by_key(self, record: Mapping[str, Any], told: _Told, calls: int) -> CallsOfSample | None:
        """Look at the keys that count lost calls."""
        keys = LOST_KEYS if self.lost_key is None else (self.lost_key,)
        count = max(_whole(record.get(key)) for key in keys)
        if not count:
            return None
        last = not any(told.said) or told.said[-1]
        return self._found(calls, count, last, KEY)

    def _by_flags(
        self, flags: Sequence[bool], source: str, told: _Told, calls: int
    ) -> CallsOfSample | None:
        """Look at the texts of the tool messages."""
        if not any(flags):
            return None
        return self._found(calls, sum(flags), flags[-1], source, outcomes=told.outcomes)

    @staticmethod
    def _found(
        calls: int, lost: int, last: bool, source: str, *, outcomes: Sequence[str] = ()
    ) -> CallsOfSample:
        return CallsOfSample(
            calls=max(calls, lost),
            lost=lost,
            last_lost=last,
            unclear=False,
            source=source,
            outcomes=tuple(outcomes),
        )


@dataclass(frozen=True, slots=True)
class _Told:
    """What the tool messages of a sample tell, one after the other."""

    ends: list[Outcome | None]
    by_pattern: list[bool]
    """Which of them match the pattern of the command line."""

    @property
    def said(self) -> list[bool]:
        """Which of them say that their call was lost."""
        return [end is not None and end.is_infrastructure for end in self.ends]

    @property
    def outcomes(self) -> list[str]:
        return [end.value for end in self.ends if end is not None and end.is_infrastructure]

    @property
    def is_unclear(self) -> bool:
        """Does the last one say nothing about its call?"""
        return bool(self.ends) and self.ends[-1] is None and not self.by_pattern[-1]


def _whole(value: Any) -> int:
    """Return a number of calls; a flag counts as one."""
    return max(0, int(value)) if isinstance(value, int | float) and abs(value) < 1e9 else 0


def _listed(record: Mapping[str, Any]) -> list[Outcome | None]:
    """Return the outcomes that the tool's extras list, in order; None for those that are not
    lost."""
    extras = record.get("sfusion")
    found = (extras if isinstance(extras, Mapping) else record).get("outcomes")
    ends = (
        [OUTCOMES.get(name) for name in found if isinstance(name, str)]
        if isinstance(found, list)
        else []
    )
    return [end if end is not None and end.is_infrastructure else None for end in ends]


def _named(counts: Any) -> tuple[str, ...]:
    found = counts if isinstance(counts, Mapping) else {}
    lost = [name for name in found if name in OUTCOMES and OUTCOMES[name].is_infrastructure]
    return tuple(name for name in lost for _ in range(min(_whole(found[name]), MOST_CALLS)))
