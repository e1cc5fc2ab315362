"""What findings mean for a training: what the model and the reward would see, the worst first.

Made from the facts of a trial and its verdicts as data; no sentence is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sfusion_tools.wording import counted

from ..core.verdict import How, Verdict
from ..lab.promises.single_call_results import wordings
from ..lab.promises.wordings import AlikeEnds, alike_ends
from ..lab.single_calls.calls import CallFacts
from ..lab.single_calls.in_words import PlayedCase, case_of, way_of
from ..lab.single_calls.suite import SuiteFacts, played_ends
from .lessons import (
    CRASH_AS_SUCCESS,
    EARLIER_LOOP,
    FAILURE_AS_END,
    FAILURES_ALIKE,
    PROGRAMS_ALIKE,
    RETRY,
    Lesson,
    lesson_of,
)

SHOWN = 7
"""Meanings on the first screen. Chosen: what somebody reads before mending the first."""
_SUCCESS = ("ok", "ok_empty")
_BAD_ENDS = {
    "program_error": "crashes",
    "timeout": "runs into its time limit",
    "compile_error": "does not compile",
    "compiler_timeout": "keeps its compiler too long",
}
_LOOKS = {
    "ok_empty": "printed nothing",
    "ok": "succeeded",
    "program_error": "crashed",
    "timeout": "ran into its time limit",
    "compile_error": "did not compile",
    "compiler_timeout": "kept its compiler too long",
}
_FAILURES = {
    "not_run": "it never ran",
    "may_have_run": "it may have run",
    "throttled": "throttled",
    "sandbox_failed": "the sandbox failed",
}
_ENDS = (
    frozenset({"ok", "ok_empty"}), *(frozenset({end}) for end in (*_BAD_ENDS, *_FAILURES)),
)  # fmt: skip
"""The ends that a caller must be able to distinguish: success, four ways in which a program goes
wrong, and four in which the sandbox does."""


@dataclass(frozen=True)
class Meaning:
    """What one or several findings mean."""

    harm: int
    """The least is the worst."""
    title: str
    remedy: str
    count: int = 0
    """In how many ways, or how often."""
    of: int = 0
    """Out of how many; 0 if that is not known."""
    example: PlayedCase | None = None
    instead: str = ""
    """What was sent instead of what was asked for."""
    findings: tuple[How, ...] = ()
    """The findings that it explains."""

    @property
    def advice(self) -> bool:
        """Is nothing broken, only worth having?"""
        return not self.findings

    @property
    def checks(self) -> list[str]:
        return list(dict.fromkeys(how.promise for how in self.findings))

    @property
    def headline(self) -> str:
        """Return the title with how often."""
        if self.advice:
            return f"{self.title} (advice, not broken)"
        often = self.count > 1 and not self.of
        return f"{self.title} ({self.count} times)" if often else self.title

    def as_dict(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "harm": self.harm,
            "advice": self.advice,
            "count": self.count,
            "of": self.of,
            "example": None if self.example is None else self.example.as_dict(),
            "instead": self.instead,
            "remedy": f"A right client {self.remedy}",
            "checks": self.checks,
            "findings": [how.as_dict() | {"details": {}} for how in self.findings],
        }


@dataclass(frozen=True)
class Grade:
    """How many of the ends that were played a client tells apart."""

    told: int
    of: int

    def __str__(self) -> str:
        return f"tells {self.told} of {self.of} ends apart"


def grade_of(facts: SuiteFacts) -> Grade | None:
    """Return how many ends a caller can distinguish; None for a client without texts, or where
    fewer than two were played. An end whose output is always spoilt has no words of its own."""
    met = wordings(facts)
    ended = {call.end for call in played_ends(facts) if not call.ask.tests} | met.keys()
    played = [ends for ends in _ENDS if ends & ended]
    groups = [set(ends) for ends in _ENDS if ends & met.keys()]
    if len(groups) < 2:
        return None
    for alike in alike_ends(met):
        if alike.wording is None:
            continue
        joined = [group for group in groups if group & alike.calls.keys()]
        groups = [group for group in groups if group not in joined]
        groups.append(set().union(*joined))
    return Grade(len(groups), len(played))


def meanings_of(facts: SuiteFacts, broken: Sequence[Verdict]) -> list[Meaning]:
    """Return what the broken verdicts mean, the worst first, and what could be better."""
    found = [*_of_ends(facts, broken)]
    explained = {how for meaning in found for how in meaning.findings}
    found += _of_others([verdict for verdict in broken if verdict.how not in explained])
    found.sort(key=lambda meaning: meaning.harm)
    return [*found, *_advice(facts)]


def meanings_of_findings(broken: Sequence[Verdict]) -> list[Meaning]:
    """Return what broken verdicts mean by their lessons alone, the worst first."""
    return sorted(_of_others(broken), key=lambda meaning: meaning.harm)


# -- ends that look alike --


def _of_ends(facts: SuiteFacts, broken: Sequence[Verdict]) -> Iterator[Meaning]:
    """Yield what it means that ends look alike: one meaning for each kind of mistake."""
    known = {verdict.how for verdict in broken if verdict.promise == "ends_told_apart"}
    groups: dict[How, AlikeEnds] = {}
    for alike in alike_ends(wordings(facts)):
        if alike.wording is not None:
            how = How("ends_told_apart", alike.kind, (("ends", alike.ends),))
            if how in known:
                groups[how] = alike
    kinds = (
        (_failure_as_end, _mixes_failures),
        (_crash_as_success, _mixes_success),
        (_programs_alike, _mixes_programs),
        (_failures_alike, _mixes_failures_only),
    )
    for make, mixes in kinds:
        hows = [how for how, alike in groups.items() if mixes(alike.calls.keys())]
        if hows:
            meaning = make(facts, [groups[how] for how in hows])
            if meaning is not None:
                yield replace(meaning, findings=tuple(hows))


def _mixes_failures(ends: Collection[str]) -> bool:
    return bool(ends & _FAILURES.keys()) and bool(ends & _LOOKS.keys())


def _mixes_success(ends: Collection[str]) -> bool:
    return bool(ends & _BAD_ENDS.keys()) and bool(set(_SUCCESS) & set(ends))


def _mixes_programs(ends: Collection[str]) -> bool:
    return not ends & _FAILURES.keys() and not set(_SUCCESS) & set(ends)


def _mixes_failures_only(ends: Collection[str]) -> bool:
    return not ends & _LOOKS.keys()


def _failure_as_end(facts: SuiteFacts, groups: list[AlikeEnds]) -> Meaning | None:
    met = wordings(facts)
    of_programs = {
        words: end for end in reversed(_LOOKS) for words in met.get(end, ())
    }  # the first of _LOOKS counts
    ways = dict[str, CallFacts]()
    looks = set[str]()
    every = set[str]()
    for call in played_ends(facts):
        if not call.failed or call.ask.tests:
            continue
        every.add(way_of(call))
        end = of_programs.get(call.wording or "")
        if end is not None and call.wording is not None:
            ways.setdefault(way_of(call), call)
            looks.add(end)
    if not ways:
        return None
    words = _joined(name for end, name in _LOOKS.items() if end in looks)
    often = f"{len(ways)} of {counted(len(every), 'way')} to fail"
    lesson = _filled(FAILURE_AS_END, looks=words, often=often)
    example = case_of(next(iter(ways.values())))
    return _meaning(lesson, example, count=len(ways), of=len(every))


def _crash_as_success(facts: SuiteFacts, groups: list[AlikeEnds]) -> Meaning:
    met = wordings(facts)
    calls = {
        end: call
        for group in groups
        if group.calls.keys() & set(_SUCCESS)
        for end, call in group.calls.items()
        if end in _BAD_ENDS
    }
    words = _joined(name for end, name in _BAD_ENDS.items() if end in calls)
    of = len(met.keys() & _BAD_ENDS.keys())
    example = case_of(next(iter(calls.values())))
    often = f"{len(calls)} of {counted(of, 'way')} to go wrong"
    lesson = _filled(CRASH_AS_SUCCESS, looks=words, often=often)
    return _meaning(lesson, example, count=len(calls), of=of)


def _programs_alike(facts: SuiteFacts, groups: list[AlikeEnds]) -> Meaning:
    calls = {end: call for group in groups for end, call in group.calls.items()}
    ends = [name for end, name in _LOOKS.items() if end in calls]
    example = case_of(next(call for end, call in calls.items() if end in _BAD_ENDS))
    return _meaning(_filled(PROGRAMS_ALIKE, looks=", ".join(ends)), example)


def _failures_alike(facts: SuiteFacts, groups: list[AlikeEnds]) -> Meaning:
    calls = {end: call for group in groups for end, call in group.calls.items()}
    ends = [name for end, name in _FAILURES.items() if end in calls]
    example = case_of(calls.get("throttled") or next(iter(calls.values())))
    return _meaning(_filled(FAILURES_ALIKE, looks=", ".join(ends)), example)


# -- everything else --


def _of_others(broken: Sequence[Verdict]) -> Iterator[Meaning]:
    """Yield a meaning for all findings with the same lesson."""
    by_lesson: dict[Lesson, list[Verdict]] = {}
    for verdict in broken:
        lesson = lesson_of(verdict.promise, verdict.how.kind)
        if _is_of_earlier_loop(verdict.how):
            lesson = EARLIER_LOOP
        by_lesson.setdefault(lesson, []).append(verdict)
    for lesson, verdicts in by_lesson.items():
        streams = {str(_parameters(verdict.how).get("stream", "")) for verdict in verdicts}
        stream = " and ".join(sorted(streams - {""}, reverse=True)) or "the output"
        meaning = _meaning(
            _filled(lesson, stream=stream),
            _example(verdicts),
            count=sum(verdict.count for verdict in verdicts),
            findings=tuple(verdict.how for verdict in verdicts),
        )
        yield replace(meaning, instead=_instead(_parameters(verdicts[0].how)))


def _is_of_earlier_loop(how: How) -> bool:
    """Did the client raise because it keeps something of an event loop that has ended?"""
    raised = f"{how.details.get('what', '')}{how.details.get('raised', '')}"
    return any(words in raised for words in _OF_EARLIER_LOOP)


_OF_EARLIER_LOOP = ("Event loop is closed", "attached to a different loop", "different event loop")
"""What asyncio raises then."""


def _parameters(how: How) -> dict[str, Any]:
    return {**how.details, **dict(how.identity)}


def _instead(parameters: Mapping[str, Any]) -> str:
    """Return what was sent instead of what was asked for; empty if it is about something else."""
    if not {"field", "found", "expected"} <= parameters.keys():
        return ""
    return "sent with {field} {found}, asked for was {expected}".format_map(parameters)


def _example(verdicts: Sequence[Verdict]) -> PlayedCase | None:
    for verdict in verdicts:
        case = verdict.how.details.get("case")
        if case is not None:
            return PlayedCase(**case)
    return None


# -- advice --


_PATIENCE = 30.0
"""Seconds of a Retry-After that a call need not wait for. Chosen: calls may have a deadline."""
_GATEWAY_TIMEOUT = 504


def _advice(facts: SuiteFacts) -> list[Meaning]:
    """Return what a client could do without being wrong: try again after a failure that passes."""
    passing = [call for call in facts if call.returned is not None and _passes(call)]
    lost = [call for call in passing if _is_lost_at_once(call)]
    if not lost:
        return []
    lesson = _filled(RETRY, saved=len(lost), of=len(passing))
    plainest = min(lost, key=_may_have_run)
    return [_meaning(lesson, case_of(plainest), count=len(lost), of=len(passing))]


def _may_have_run(call: CallFacts) -> bool:
    """Was it lost by a 504, after which its program may have run?"""
    return any(request.status == _GATEWAY_TIMEOUT for request in call.requests)


def _passes(call: CallFacts) -> bool:
    """Does the sandbox fail only the first attempts of a call, and answer soon after?"""
    part = call.planned.part
    of_tests = [test.fault for test in part.tests if test.fault is not None]
    faults = [*part.fault, *of_tests]
    longest = _PATIENCE * call.run.settings.scale
    waits = [request.retry_after or 0.0 for request in call.requests]
    passing = all(fault.first_attempts is not None for fault in faults)
    return bool(faults) and passing and max(waits, default=0.0) < longest


def _is_lost_at_once(call: CallFacts) -> bool:
    """Was it given up after one attempt, so that none could be answered?"""
    is_lost = bool(call.lost) if call.ask.tests else call.answered is None
    return is_lost and all(len(sent) == 1 for sent in call.attempts)


# -- helpers --


def _meaning(
    lesson: Lesson,
    example: PlayedCase | None,
    *,
    count: int = 0,
    of: int = 0,
    findings: tuple[How, ...] = (),
) -> Meaning:
    return Meaning(
        harm=lesson.harm,
        title=lesson.title,
        remedy=lesson.remedy,
        count=count,
        of=of,
        example=example,
        findings=findings,
    )


def _filled(lesson: Lesson, **parameters: Any) -> Lesson:
    return replace(lesson, title=lesson.title.format_map(parameters))


def _joined(words: Iterator[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last
