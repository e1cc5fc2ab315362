"""Promises about what single calls tell: exit codes, ends that can be told apart, and wordings."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import ClassVar

from ..facts.read import exits, integers
from ..single_calls.calls import FAILED_ENDS, CallFacts, SuiteFacts, played_ends
from .base import Promise
from .findings import Findings, Wrong, shown, unless, wrong
from .single_told import wordings, wordings_to_read

_EXIT_FIELDS = ("exit_code", "return_code", "returncode", "exit")
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
        usual = _usual_numbers(facts)
        for call in played_ends(facts):
            yield from _wrong_codes(call, usual)
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


def _wrong_codes(call: CallFacts, usual: set[int]) -> Findings:
    """Find codes that are told although the program exited with another."""
    truth, returned = call.truth, call.returned
    if truth is None or returned is None or truth.ending != "exited":
        return
    for name in _EXIT_FIELDS:
        value = returned.fields.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            right = value in exits(truth.exit)
            yield unless(right, "field", call, code=truth.exit, told=value, place=name)
    reading = call.reading
    if not truth.exit or reading is None or reading.cut or reading.wrong:
        return
    numbers = integers(call.wording or "") - usual
    if numbers:
        about = {"code": truth.exit, "told": sorted(numbers), "place": "text"}
        yield unless(numbers & exits(truth.exit), "text", call, **about)


def _invented_codes(call: CallFacts, before: dict[str, set[tuple[str, int]]]) -> Findings:
    """Find codes that are told although the program was stopped, or did not run."""
    truth, returned = call.truth, call.returned
    stopped = truth is not None and truth.ending in ("stopped", "compiler_stopped")
    if returned is None or call.ask.tests or not (stopped or call.end in FAILED_ENDS):
        return
    fields = [
        name for name in _EXIT_FIELDS if returned.fields.get(name) == 0 and not returned.raised
    ]
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
    return {
        re.sub(rf"(?<!\d){re.escape(str(code))}\b", str(number), wording) for wording, code in known
    }


def _signals_as_codes(facts: SuiteFacts) -> Findings:
    """Find silent programs of which one was ended by a signal, and that read the same."""
    for call, other in itertools.permutations(_silent(facts), 2):
        assert call.truth is not None
        assert other.truth is not None
        code, words = other.truth.exit, call.wording
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
        "silent": "{call} printed to stderr only, and is told as a program that printed "
        "nothing: {wording}",
        "believed": "{call}: an answer that contradicts itself is told as success: {wording}",
    }
    identity = ("ends",)
    unseen = (
        "fewer than two ways to end were played; judge-programs and judge-failures have them all"
    )

    def find(self, facts: SuiteFacts) -> Findings:
        met = wordings(facts)
        yield from _same_wordings(met)
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


def _same_wordings(met: dict[str, dict[str, CallFacts]]) -> Findings:
    alike: dict[tuple[str, str], dict[str, CallFacts]] = defaultdict(dict)
    for one, other in itertools.combinations(met, 2):
        if {one, other} in _ALIKE:
            continue
        kind, shared = _shared_wording(met, one, other)
        if shared is None:
            yield None
        else:
            alike[kind, shared] |= {end: met[end][shared] for end in (one, other)}
    for (kind, wording), calls in alike.items():
        yield _same(kind, wording, calls)


def _shared_wording(
    met: dict[str, dict[str, CallFacts]], one: str, other: str
) -> tuple[str, str | None]:
    """Return a wording that two ends share, if they must not."""
    shared = sorted(met[one].keys() & met[other].keys())
    if not (one in FAILED_ENDS and other in FAILED_ENDS):
        return "same", next(iter(shared), None)
    # Each is met in several ways, some of which look alike to a client.
    always = len(met[one].keys() | met[other].keys()) == 1
    apart = always and "sandbox_failed" not in (one, other)
    return "all_same", next(iter(shared), None) if apart else None


def _same(kind: str, wording: str, calls: dict[str, CallFacts]) -> Wrong:
    *others, last = calls
    ends = f"{', '.join(others)} and {last}"
    names = ", ".join(call.name for call in calls.values())
    evidence = [event for call in calls.values() for event in call.evidence[-1:]]
    facts = {"ends": ends, "calls": names, "wording": shown(wording)}
    return Wrong(kind, facts, evidence)


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
