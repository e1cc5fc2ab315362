"""Which calls of a sample were lost, by facts: an event log, what a dump says, or texts that tools
wrote."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from sfusion_tools.outcome import OUTCOMES, Outcome

from ...fakes.faults.pattern import PatternSearches
from ..core.dumps.rollout import Rollout, first_of
from ..core.dumps.text_clusters import TextClusters
from ..core.dumps.tool_texts import MOST_CALLS, outcome_of_text
from ..core.dumps.trainers import LOST_BY, LOST_PLACE
from .event_evidence import EventLogEvidence
from .programs import ProgramLosses

EVENTS = "event log"
REQUESTS = "requests file"
KEY = "key of the dump"
PATTERN = "--lost-pattern"
TEXT = "known text"
"""What a lost call is recognised by; the first that says so counts."""
LOST_KEYS = ("lost_calls", "infrastructure_failures", "infrastructure")
"""Numbers of lost calls: as docs/verl.md puts them into a dump, as our requests file has them,
as the tool's extras."""


_COMPARED = 4_000
"""Characters of a text in which a host is looked for (chosen: as for known texts)."""


class LossPlace(StrEnum):
    """Where a sample was lost."""

    TOOL = "tool"
    """In a call of the model's tool."""
    REWARD = "reward"
    """In a call of the reward function."""
    ROLLOUT = "rollout"
    """Its trainer gave it up or masked it, and does not say why."""


@dataclass(frozen=True, slots=True)
class CallsOfSample:
    """How the tool calls of one sample ended."""

    calls: int = 0
    lost: int = 0
    last_lost: bool = False
    unclear: bool = False
    """The model read an empty text or one that stands for anything, and nothing else says what
    happened."""
    is_covered: bool = False
    """Something says how its calls ended."""
    source: str = ""
    """What the lost calls were recognised by."""
    outcomes: tuple[str, ...] = ()
    """How the lost calls ended, as far as that is known."""
    place: LossPlace = LossPlace.TOOL


@dataclass
class Evidence:
    """What is known beside the dump, and how much of it was used."""

    pattern: str | None = None
    """A text that matches was a lost call."""
    output_pattern: str | None = None
    """A text that matches is the program's output."""
    lost_key: str | None = None
    reward_keys: Sequence[str] = ("reward_lost",)
    events: EventLogEvidence = field(default_factory=EventLogEvidence)
    used: Counter[str] = field(default_factory=Counter)
    """Samples with a score by what their lost calls were recognised by."""
    reward_told: int = 0
    """Samples that say whether their reward was lost."""
    clusters: TextClusters = field(default_factory=TextClusters)
    """Texts that are taken for output only because nobody knows them."""
    vague: TextClusters = field(default_factory=TextClusters)
    """Texts that stand for any failure and for none."""
    programs: ProgramLosses = field(default_factory=ProgramLosses)
    _same: dict[CallsOfSample, CallsOfSample] = field(default_factory=dict)
    """Each different answer once: most samples have the same."""
    _searches: PatternSearches = field(default_factory=PatternSearches)

    def of(
        self, rollout: Rollout, request: Mapping[str, Any], step: int = 0, prompt: Hashable = None
    ) -> CallsOfSample:
        """Return how the calls of a sample ended, by the first evidence that tells."""
        found = self._of(rollout, request, step, prompt)
        return self._same.setdefault(found, found)

    def _of(
        self, rollout: Rollout, request: Mapping[str, Any], step: int, prompt: Hashable
    ) -> CallsOfSample:
        id = "" if rollout.id is None else str(rollout.id)
        self.events.meet(id)
        told = self._told(rollout)
        calls = max(
            len(told.ends),
            _whole(rollout.record.get("calls")),
            _whole(request.get("calls")),
            self.events.calls_of(id),
        )
        if rollout.programs:
            self.programs.add(rollout.programs, told.lost, step)

        lost = self._loss(id, rollout, request, told, calls)
        if lost is not None:
            return lost
        is_told = bool(request) or self._tells(rollout.record)
        is_logged = self.events.covers(id, max(1, calls))
        if rollout.score is not None and not is_told:
            if told.is_open:
                self.clusters.add(rollout.texts[-1], step, prompt, rollout.score)
            elif told.is_unclear and not is_logged:
                self.vague.add(rollout.texts[-1], step, prompt, rollout.score)
        is_read = bool(told.ends) and not self.events.calls
        return CallsOfSample(
            calls,
            unclear=told.is_unclear and not is_told and not is_logged,
            is_covered=is_told or is_logged or is_read,
        )

    def _loss(
        self,
        id: str,
        rollout: Rollout,
        request: Mapping[str, Any],
        told: _Told,
        calls: int,
    ) -> CallsOfSample | None:
        """Ask each source in the order of docs/poison.md; None if none knows of a loss."""
        return (
            self._by_events(id, calls)
            or (self._by_request(request, told, calls) if request else None)
            or self._by_record(rollout.record, told, calls)
            or _by_flags(told.by_pattern, PATTERN, told, calls)
            or _by_flags(told.said, TEXT, told, calls)
        )

    def _tells(self, record: Mapping[str, Any]) -> bool:
        """Does the line itself say whether calls were lost?"""
        if self._keys.isdisjoint(record):
            return False
        return bool(_listed(record)) or self._has_key(record)

    @cached_property
    def _keys(self) -> frozenset[str]:
        """Keys of a line that say something about losses; most lines have none of them."""
        own = () if self.lost_key is None else (self.lost_key,)
        return frozenset((*LOST_KEYS, *own, *self.reward_keys, LOST_BY, "sfusion", "outcomes"))

    def _by_record(
        self, record: Mapping[str, Any], told: _Told, calls: int
    ) -> CallsOfSample | None:
        """Look at what the line itself says."""
        if self._keys.isdisjoint(record):
            return None
        if first_of(record, self.reward_keys) is not None:
            self.reward_told += 1
        return (
            _by_list(_listed(record), calls)
            or self._by_reward(record, calls)
            or _by_trainer(record, calls)
            or self._by_key(record, told, calls)
        )

    def _told(self, rollout: Rollout) -> _Told:
        """Read the tool messages of a sample."""
        ends = []
        by_pattern = []
        declared = []
        for text in rollout.texts:
            is_output = self._matches(self.output_pattern, text)
            is_lost = not is_output and self._matches(self.pattern, text)
            end = Outcome.OK if is_output else None
            if not is_output and text.strip():
                end = outcome_of_text(text)
                if end is not None and end.is_infrastructure:
                    end = Outcome.PROGRAM_ERROR if _is_own(text, rollout.programs) else end
            ends.append(end)
            by_pattern.append(is_lost)
            declared.append(is_output)
        return _Told(ends, by_pattern, declared)

    def _matches(self, pattern: str | None, text: str) -> bool:
        return pattern is not None and self._searches.matches(pattern, text)

    def _has_key(self, record: Mapping[str, Any]) -> bool:
        keys = LOST_KEYS if self.lost_key is None else (self.lost_key,)
        return any(record.get(key) is not None for key in keys)

    def _by_events(self, id: str, calls: int) -> CallsOfSample | None:
        """Look into the event log."""
        ended = self.events.lost(id)
        if not ended:
            return None
        return _found(calls, len(ended), self.events.last_lost(id), EVENTS, outcomes=ended)

    def _by_request(
        self, request: Mapping[str, Any], told: _Told, calls: int
    ) -> CallsOfSample | None:
        """Look at the counts that a rollout dumps."""
        count = _whole(request.get("infrastructure_failures"))
        if not count:
            return None
        # The counts have no order; the texts have, and dumps since 2026-11 say it.
        last = request.get("last_call_lost", told.last_lost(count))
        outcomes = _named(request.get("outcomes"))
        return _found(calls, count, bool(last), REQUESTS, outcomes=outcomes)

    def _by_reward(self, record: Mapping[str, Any], calls: int) -> CallsOfSample | None:
        """Look at the keys that say whether the reward was lost."""
        count = max((_whole(record.get(key)) for key in self.reward_keys), default=0)
        if not count:
            return None
        return _found(calls, 0, True, KEY, place=LossPlace.REWARD)

    def _by_key(self, record: Mapping[str, Any], told: _Told, calls: int) -> CallsOfSample | None:
        """Look at the keys that count lost calls."""
        if not self._has_key(record):
            return None
        keys = LOST_KEYS if self.lost_key is None else (self.lost_key,)
        count = max(_whole(record.get(key)) for key in keys)
        if not count:
            return None
        if not calls:  # nothing was asked of the tool, so it was the reward's call
            return _found(0, 0, True, KEY, place=LossPlace.REWARD)
        return _found(calls, count, told.last_lost(count), KEY)


@dataclass(frozen=True, slots=True)
class _Told:
    """What the tool messages of a sample tell, one after the other."""

    ends: list[Outcome | None]
    by_pattern: list[bool]
    """Which of them match --lost-pattern."""
    declared: list[bool]
    """Which of them match --output-pattern."""

    @property
    def said(self) -> list[bool]:
        """Which of them say that their call was lost."""
        return [end is not None and end.is_infrastructure for end in self.ends]

    @property
    def lost(self) -> list[bool]:
        """Which of them say it, or match the pattern."""
        return [a or b for a, b in zip(self.said, self.by_pattern, strict=True)]

    @property
    def outcomes(self) -> list[str]:
        return [end.value for end in self.ends if end is not None and end.is_infrastructure]

    @property
    def is_unclear(self) -> bool:
        """Does the last one say nothing about its call?"""
        return bool(self.ends) and self.ends[-1] is None and not self.by_pattern[-1]

    @property
    def is_open(self) -> bool:
        """Is the last one taken for output only because nobody knows it?"""
        return bool(self.ends) and self.ends[-1] is Outcome.OK and not self.declared[-1]

    def last_lost(self, count: int) -> bool:
        """Was the last call among ``count`` lost ones, of which only the number is known?

        A text that is plain output after them shows that the sample got a result.
        """
        if any(self.said):
            return self.said[-1]
        return count >= len(self.ends) or self.is_unclear


_HOST = re.compile(r"(?:\bhost='|\bhost |://|Failed to resolve ')([\w.-]+\.[\w.-]*[a-zA-Z][\w.-]*)")
"""A host with a name in the text of an HTTP library."""


def _is_own(text: str, programs: Sequence[str]) -> bool:
    """Does a text name a host that the sample's own programs asked? Then it is their failure."""
    if not programs:
        return False
    hosts = set(_HOST.findall(text[:_COMPARED]))
    return any(host in program for host in hosts for program in programs)


def _found(
    calls: int,
    lost: int,
    last: bool,
    source: str,
    *,
    outcomes: Sequence[str] = (),
    place: LossPlace = LossPlace.TOOL,
) -> CallsOfSample:
    return CallsOfSample(
        calls=max(calls, lost),
        lost=lost,
        last_lost=last,
        unclear=False,
        is_covered=True,
        source=source,
        outcomes=tuple(outcomes),
        place=place,
    )


def _by_trainer(record: Mapping[str, Any], calls: int) -> CallsOfSample | None:
    """Look at what the trainer itself declares."""
    by = record.get(LOST_BY)
    if not isinstance(by, str):
        return None
    named = record.get(LOST_PLACE)  # a user's line may have a key of this name, with anything
    place = next((place for place in LossPlace if place == named), LossPlace.ROLLOUT)
    return _found(calls, int(place is LossPlace.TOOL), True, by, place=place)


def _by_list(listed: Sequence[Outcome | None], calls: int) -> CallsOfSample | None:
    """Look at the outcomes that the tool's extras list."""
    if not any(listed):
        return None
    outcomes = [outcome.value for outcome in listed if outcome is not None]
    return _found(calls, len(outcomes), listed[-1] is not None, KEY, outcomes=outcomes)


def _by_flags(flags: Sequence[bool], source: str, told: _Told, calls: int) -> CallsOfSample | None:
    """Look at the texts of the tool messages."""
    if not any(flags):
        return None
    return _found(calls, sum(flags), flags[-1], source, outcomes=told.outcomes)


def _whole(value: Any) -> int:
    """Return a number of calls; a flag counts as one."""
    return max(0, int(value)) if isinstance(value, int | float) and abs(value) < 1e9 else 0


def _listed(record: Mapping[str, Any]) -> list[Outcome | None]:
    """Return the outcomes that the tool's extras list, in order; None for those that are not
    lost."""
    extras = record.get("sfusion")
    found = (extras if isinstance(extras, Mapping) else record).get("outcomes")
    if not isinstance(found, list):
        return []
    ends = [OUTCOMES.get(name) for name in found if isinstance(name, str)]
    return [end if end is not None and end.is_infrastructure else None for end in ends]


def _named(counts: Any) -> tuple[str, ...]:
    """Return the lost outcomes that a requests file counts, each as often as it happened."""
    named: list[str] = []
    for name in counts if isinstance(counts, Mapping) else ():
        outcome = OUTCOMES.get(name)
        if outcome is not None and outcome.is_infrastructure:
            named += [name] * min(_whole(counts[name]), MOST_CALLS)
    return tuple(named)
