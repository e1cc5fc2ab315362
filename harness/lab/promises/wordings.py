"""Promises about what single calls tell: exit codes, ends that can be told apart, and wordings."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from ...core.journal import Event
from ..client import EXIT_FIELDS
from ..facts.read import exits, integers
from ..single_calls.calls import FAILED_ENDS, PROGRAM_ENDS, CallFacts
from ..single_calls.in_words import case_of
from ..single_calls.suite import SuiteFacts, played_ends
from .base import Promise
from .findings import Findings, Wrong, shown, unless, wrong
from .single_call_results import wordings, wordings_to_read

_NUMBER = re.compile(r"([^\W\d]+\W*?)(-?\d+)\b")


class ExitCodeTold(Promise):
    """Any exit code in the text or in a field of a single call is the real one."""

    sentences: ClassVar = {
        "text": "{call}: the program exited with {code}, the text says {told}",
        "field": "{call}: the program exited with {code}, the field says {told}",
        "signal": "{call} was ended by signal {code}, {other} exited with that code, and the "
        "text is the same: {told}",
        "none": "{call} ({end}): there was no exit code, and the {place} says {told}",
    }
    identity = ("place",)
    unseen = "no result has an exit code, as a field (exit_code, return_code) or in its text"

    def find(self, facts: SuiteFacts) -> Findings:
        slots = code_slots(_failed_programs(facts), _usual_numbers(facts))
        for call in played_ends(facts):
            yield from _wrong_fields(call)
            yield from _wrong_texts(call, slots)
        before = _before_codes(facts)
        for call in played_ends(facts):
            yield from _invented_codes(call, before)
        yield from _signals_as_codes(facts)


def _usual_numbers(facts: SuiteFacts) -> set[int]:
    """Return the numbers that wordings have although there is no exit code to tell."""
    found = set[int]()
    for call in facts:
        if call.end in ("ok", "ok_empty", "timeout") and call.wording is not None:
            found |= integers(call.wording)
    return found


def _wrong_fields(call: CallFacts) -> Findings:
    """Find fields with a code although the program exited with another."""
    truth = call.truth
    returned = call.returned
    if truth is None or returned is None or truth.ending != "exited":
        return
    for name in EXIT_FIELDS:
        value = returned.fields.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            right = value in exits(truth.exit)
            yield unless(right, "field", call, code=truth.exit, told=value, place=name)


def _wrong_texts(call: CallFacts, slots: frozenset[str]) -> Findings:
    """Find texts with another number where this client tells exit codes."""
    if not _tells_a_failed_program(call):
        return
    assert call.truth is not None
    after_words = _numbers_after(call.wording or "")
    numbers = integers(call.wording or "") | {number for number, _ in after_words}
    if numbers & exits(call.truth.exit):
        yield None
        return
    told = sorted(number for number, words in after_words if words in slots)
    if told:
        yield wrong("text", call, code=call.truth.exit, told=told, place="text")


def _tells_a_failed_program(call: CallFacts) -> bool:
    """Is there a text about a program that ended by itself, with an exit code that is not 0?"""
    truth = call.truth
    if truth is None or truth.ending != "exited" or not truth.exit:
        return False
    reading = call.reading
    return reading is not None and not reading.cut and not reading.wrong


def _failed_programs(facts: SuiteFacts) -> Iterator[tuple[str, int]]:
    """Yield the wording and the exit code of each program that failed."""
    for call in played_ends(facts):
        if _tells_a_failed_program(call):
            assert call.truth is not None
            yield call.wording or "", call.truth.exit


_CODES = 3
"""Programs with so many different exit codes must have failed before one number for all of them is
taken for an exit code. Chosen: judge-programs has six."""


def code_slots(told: Iterable[tuple[str, int]], usual: Collection[int] = ()) -> frozenset[str]:
    """Return the words after which a client writes exit codes, from wordings of failed programs.

    What is written there depends on the code: it is the code for some, or the same other number
    each time (too high by one). A number that differs for the same code counts something else,
    such as runs or attempts. One number for every code is an exit code if it is the only number.
    """
    numbers: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    accompanied = set[str]()
    for wording, code in told:
        found = [pair for pair in _numbers_after(wording) if pair[0] not in usual]
        for number, words in found:
            numbers[words][code].append(number)
            if len(found) > 1:
                accompanied.add(words)
    return frozenset(
        words
        for words, by_code in numbers.items()
        if _follows_the_code(by_code, alone=words not in accompanied)
    )


def _follows_the_code(by_code: Mapping[int, list[int]], *, alone: bool) -> bool:
    """Are these the numbers for exit codes, right or wrong?"""
    right = [code for code, numbers in by_code.items() if exits(code).issuperset(numbers)]
    if len(right) > 1:
        return True
    if any(len(set(numbers)) > 1 for numbers in by_code.values()):
        return False
    if len(set().union(*by_code.values())) == 1:
        return alone and len(by_code) >= _CODES
    return any(len(numbers) > 1 for numbers in by_code.values())


def _invented_codes(call: CallFacts, before: dict[str, set[tuple[str, int]]]) -> Findings:
    """Find codes that are told although the program was stopped, or did not run."""
    truth = call.truth
    returned = call.returned
    stopped = truth is not None and truth.ending in ("stopped", "compiler_stopped")
    if returned is None or call.ask.tests or not (stopped or call.end in FAILED_ENDS):
        return
    told = {} if returned.raised else returned.fields
    fields = [name for name in EXIT_FIELDS if told.get(name) == 0]
    for name in fields:
        yield wrong("none", call, end=call.end, place=f"field {name}", told=0)
    if fields:
        return
    for number, word in _numbers_after(call.wording or ""):
        # Other numbers of a failure, such as a status of HTTP, may follow the same word.
        known = before.get(word)
        if known and (stopped or call.wording in _with_code(known, number)):
            yield wrong("none", call, end=call.end, place="text", told=number)


def _numbers_after(wording: str) -> list[tuple[int, str]]:
    """Return the numbers of a wording, each with the word before it."""
    return [(int(number), words) for words, number in _NUMBER.findall(wording)]


def _before_codes(facts: SuiteFacts) -> dict[str, set[tuple[str, int]]]:
    """Return the words that a client writes before exit codes and before nothing else, each with
    whole wordings."""
    found: dict[str, set[tuple[str, int]]] = defaultdict(set)
    others = set[str]()
    for call in played_ends(facts):
        if call.end != "program_error" or call.truth is None or call.wording is None:
            continue
        for number, words in _numbers_after(call.wording):
            if number in exits(call.truth.exit):
                found[words].add((call.wording, number))
            else:
                others.add(words)
    return {words: known for words, known in found.items() if _are_codes(words, known, others)}


def _are_codes(words: str, known: set[tuple[str, int]], others: set[str]) -> bool:
    return words not in others and len({number for _, number in known}) > 1


def _with_code(known: set[tuple[str, int]], number: int) -> set[str]:
    """Return wordings with another exit code."""
    changed = set()
    for wording, code in known:
        pattern = rf"(?<!\d){re.escape(str(code))}\b"
        changed.add(re.sub(pattern, str(number), wording))
    return changed


def _signals_as_codes(facts: SuiteFacts) -> Findings:
    """Find silent programs of which one was ended by a signal, and that read the same."""
    for call, other in itertools.permutations(_silent(facts), 2):
        assert call.truth is not None
        assert other.truth is not None
        code = other.truth.exit
        words = call.wording
        if call.truth.exit == -code < 0 and words is not None and code in integers(words):
            about = {"other": other.name, "code": code, "told": shown(words), "place": "signal"}
            yield unless(words != other.wording, "signal", call, **about)


def _silent(facts: SuiteFacts) -> Iterator[CallFacts]:
    for call in played_ends(facts):
        if call.truth is not None and not (call.truth.stdout or call.truth.stderr):
            yield call


_ALIKE = (
    {"ok", "ok_empty"},
    {"timeout", "compiler_timeout"},
    {"compile_error", "compiler_timeout"},
)
"""Ends that differ by what is printed, or may be called the same."""


class EndsToldApart(Promise):
    """Ends of single calls that the caller must be able to distinguish never have the same wording.

    Of failures too: a throttled call wants patience, and one that may have run is not repeated
    lightly.
    """

    takes = frozenset({"text"})
    sentences: ClassVar = {
        "same": "{ends} have the same wording: {wording} ({calls})",
        "all_same": "{ends} cannot be told apart: they are always {wording}",
        "accident": "{ends} have the same wording, an error of the client's own: {wording} "
        "({calls})",
        "silent": "{call} printed to stderr only, and is told as a program that printed "
        "nothing: {wording}",
        "believed": "{call}: an answer that contradicts itself is told as success: {wording}",
    }
    identity = ("ends",)
    unseen = (
        "fewer than two ways to end were played; judge-programs and judge-failures have them all"
    )

    def caveat(self, facts: SuiteFacts) -> str:
        met = wordings(facts)
        missing = [end for end in dict.fromkeys(PROGRAM_ENDS.values()) if end not in met]
        return f"not played: {', '.join(missing)}" if missing else ""

    def find(self, facts: SuiteFacts) -> Findings:
        met = wordings(facts)
        yield from _same_wordings(_judged_apart(facts, met))
        well = [call for call in played_ends(facts) if call.end in ("ok", "ok_empty")]
        printed = {call.wording for call in well if call.truth and call.truth.stdout}
        nothing = met.get("ok_empty", {}).keys() - printed
        for call in well:
            if call.truth and call.truth.stderr and not call.truth.stdout:
                words = shown(call.wording)
                fine = call.wording not in nothing
                yield unless(fine, "silent", call, ends="silent", wording=words)
        success = met.get("ok", {}).keys() | nothing
        for call in facts:
            struck = any(request.faults for request in call.requests)
            if call.planned.end == "any" and call.returned is not None and struck:
                words = shown(call.wording)
                fine = call.wording not in success
                yield unless(fine, "believed", call, ends="contradictory", wording=words)


def _judged_apart(
    facts: SuiteFacts, met: dict[str, dict[str, CallFacts]]
) -> dict[str, dict[str, CallFacts]]:
    """Leave out what may read like being throttled: a sandbox that was only busy, never down."""
    was_down = any(call.end == "not_run" and not call.requests for call in played_ends(facts))
    return {end: words for end, words in met.items() if end != "not_run" or was_down}


def _same_wordings(met: dict[str, dict[str, CallFacts]]) -> Findings:
    for alike in alike_ends(met):
        if alike.wording is None:
            yield None
        else:
            yield _same(alike)


@dataclass(frozen=True)
class AlikeEnds:
    """Ends that share a wording, or two that do not."""

    kind: str
    wording: str | None
    """None if they can be told apart."""
    calls: Mapping[str, CallFacts]
    """For each end the call that had it."""

    @property
    def ends(self) -> str:
        *others, last = self.calls
        return f"{', '.join(others)} and {last}"


def alike_ends(met: Mapping[str, Mapping[str, CallFacts]]) -> list[AlikeEnds]:
    """Compare the wordings of each two ends; those that share one are joined."""
    found: list[AlikeEnds] = []
    alike: dict[tuple[str, str], dict[str, CallFacts]] = defaultdict(dict)
    for end, other in itertools.combinations(met, 2):
        if {end, other} in _ALIKE:
            continue
        kind, shared = _shared_wording(met, end, other)
        if shared is None:
            found.append(AlikeEnds(kind, None, {}))
        else:
            alike[kind, shared] |= {end: met[end][shared], other: met[other][shared]}
    found += [AlikeEnds(kind, words, calls) for (kind, words), calls in alike.items()]
    return found


def _shared_wording(
    met: Mapping[str, Mapping[str, CallFacts]], end: str, other: str
) -> tuple[str, str | None]:
    """Return a wording that two ends share, if they must not."""
    shared = sorted(met[end].keys() & met[other].keys())
    if end not in FAILED_ENDS or other not in FAILED_ENDS:
        return "same", next(iter(shared), None)
    accidents = [wording for wording in shared if _is_accident(wording)]
    if accidents:
        return "accident", accidents[0]
    # Each is met in several ways, some of which look alike to a client.
    always = len(met[end].keys() | met[other].keys()) == 1
    apart = always and "sandbox_failed" not in (end, other)
    return "all_same", next(iter(shared), None) if apart else None


_ACCIDENTS = ("KeyError", "TypeError", "AttributeError", "IndexError", "UnboundLocalError")
"""What Python raises where code expected another answer: nobody reports a failure by these."""


_RAISED = re.compile(r"raised (\w+)[:(]")


def _is_accident(wording: str) -> bool:
    raised = _RAISED.match(wording)
    return raised is not None and raised[1] in _ACCIDENTS


def _same(alike: AlikeEnds) -> Wrong:
    calls = list(alike.calls.values())
    names = ", ".join(call.name for call in calls)
    evidence: list[Event] = []
    for call in calls:
        evidence += call.evidence[-1:]
    facts = {"ends": alike.ends, "calls": names, "wording": shown(alike.wording)}
    telling = sorted(calls, key=lambda call: call.end not in FAILED_ENDS)[0]
    # The sentence names several calls.
    return Wrong(alike.kind, facts, evidence, case_of(telling), in_sentence=False)


class WordingsAccepted(Promise):
    """Every wording of single calls is in the accepted baseline."""

    takes = frozenset({"text"})
    sentences: ClassVar = {"new": "{end}: nobody has read this wording yet: {wording} ({call})"}
    identity = ("end",)
    unseen = (
        "no wordings were accepted yet; --baseline FILE --update keeps these, "
        "--baseline FILE compares"
    )

    def find(self, facts: SuiteFacts) -> Findings:
        if facts.accepted is None:
            return
        for end, met in wordings_to_read(facts).items():
            for wording, call in met.items():
                known = wording in facts.accepted.get(end, ())
                yield unless(known, "new", call, end=end, wording=shown(wording, 160))
