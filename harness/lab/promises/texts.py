"""Promises about what the model reads and what it is rewarded for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any, ClassVar, NamedTuple

from sfusion_tools.outcome import PROGRAM_OUTCOMES
from sfusion_tools.sandbox.text import plain

from ...core.events import ReturnedEvent
from ...core.journal import Event
from ...core.run_events import CallEvents, RunEvents
from ...core.sandbox_lives import SandboxLives
from ...core.verdict import Verdict
from ..facts.canary import tokens_in
from ..facts.read import TextReading, exits, integers
from ..facts.truth import ProgramTruth
from ..single_calls.suite import SuiteFacts
from .base import Promise
from .episode_results import find_answers_of_others, find_scored_losses
from .findings import Findings, wrong_run
from .output import misses
from .readings import FAILED, QUOTED, REFUSED, WHOLE, ReadCall, read_calls
from .scores import find_scored_failures
from .single_call_results import find_misreadings
from .together import find_shared_answers


class TextIsTruthful(Promise):
    """The model reads what happened: if its program ran, what that wrote, each word once and in
    order; if not, nothing that looks like it. Ends that differ read differently, in whatever
    language. Compared with what the program does and what the sandbox really executed, whatever the
    tool states. In rollouts, what a turn `sees` is there."""

    needs = "ending"
    sentences: ClassVar = {
        "other_outcome": "call {call}: the outcome is {outcome}, but the program ends with {kind}",
        "never_given": "call {call}: the outcome is {outcome}, but the sandbox never gave a result",
        "missing": "call {call}: expected {prints!r} in the tool message, found {text!r}",
        "changed": (
            "call {call}: the tool message does not show {stream} as it was, "
            "{lost!r} is missing: {text!r}"
        ),
        "scrambled": (
            "call {call}: the tool message shows the lines of the output in another order: {text!r}"
        ),
        "repeated": "call {call}: the tool message shows a part of the output twice: {text!r}",
        "stderr_first": "call {call}: the tool message shows stderr before stdout: {text!r}",
        "end_hidden": (
            "call {call}: the program ended with {kind}, but the tool message is {text!r}"
        ),
        "empty": "call {call}: the call {end}, but the tool message is empty",
        "invented": (
            "call {call}: the call got no result, but the tool message looks like output: {text!r}"
        ),
        "same_words": (
            "the text is the same where a call {end} ({call}) and where one "
            "{kind} ({other}): {text!r}"
        ),
        "exit_untrue": (
            "call {call}: the program ended with exit code {exit}, but the tool "
            "message tells {told}"
        ),
        "not_read": "the model of rollout {rollout} was to read {missed!r} and did not",
        "nothing": "no call returned a text that could be judged",
        "held": "{judged:tool message}, all true",
        "not_there": "call {call}: {stream} of the program is not in the text: {text!r}",
        "cut_silently": (
            "call {call}: {missing} characters of {stream} are missing, and nothing says so"
        ),
        "cut_unnumbered": (
            "call {call}: {missing} characters of {stream} are missing, and no number says how much"
        ),
        "cut_twice": (
            "call {call}: {missing} characters of {stream} are missing in several places, not all "
            "of which are told"
        ),
        "cut_untrue": (
            "call {call}: {missing} characters of {stream} are missing, and no number in the text "
            "is that: {told}"
        ),
        "foreign": "call {call}: the text holds output that this program never printed: {text!r}",
        "inserted": "call {call}: {lost!r} stands inside {stream}, where the program did not "
        "print it",
        "null": "call {call}: the text ends with {lost!r}, which the program did not print: a "
        "missing value was written as text",
        "limit": "{call} and {others} were stopped after {limits} s, and each text says {told} s",
    }
    takes = frozenset({"text"})
    of_single_calls = (
        "The text contains the program's output once and in order; a truncated text says how "
        "much is missing. Blanks at the end may be left out, and so may the stderr of a "
        "program that succeeded."
    )
    unseen = "no program ended and returned a text; judge-programs plays some"
    identity = ("outcome", "kind", "end", "stream")

    def find(self, facts: SuiteFacts) -> Findings:
        return find_misreadings(facts)

    def findings(self, run: RunEvents) -> Iterator[Verdict | None]:
        found = read_calls(run)
        for read in found:
            lie = _lie(read)
            yield None if lie is None else self.broken_by(read.call, lie.kind, **lie.parameters)
        for read, other in _alike(found):
            yield self.broken_by(
                read.call,
                "same_words",
                end=_ENDS[read.end],
                kind=_ENDS[other.end],
                other=other.call.call,
                text=(read.text or "")[:QUOTED],
            )
        for read, told in _wrong_exits(found):
            exit_code = read.truth.exit if read.truth else 0
            yield self.broken_by(read.call, "exit_untrue", exit=exit_code, told=told)
        for event in run.engine:
            if event["event"] == "spoke" and "missed" in event:
                yield self.broken(
                    "not_read", [event], rollout=event["rollout"], missed=event["missed"]
                )


_ENDS = {
    "ok": "succeeded",
    "program_error": "failed by its program",
    "program_timeout": "timed out",
    "compile_error": "did not compile",
    FAILED: "got no result",
    REFUSED: "was refused",
}
_OWN_MISREADS = ("changed", "scrambled", "repeated", "stderr_first")
"""Others are those of promises of their own."""


class _Lie(NamedTuple):
    """What is untrue about a tool message: the kind of a sentence and its parameters."""

    kind: str
    parameters: dict[str, Any]


def _lie(read: ReadCall) -> _Lie | None:
    """Return what is untrue about a tool message, or about the outcome that is stated."""
    untrue = _untrue_outcome(read)
    if untrue is not None or read.text is None:
        return untrue
    if read.reading is None or read.truth is None:
        return _lie_without_result(read, read.text)
    return _lie_about_result(read, read.text, read.truth, read.reading)


def _untrue_outcome(read: ReadCall) -> _Lie | None:
    """Return how the stated outcome differs from what happened."""
    kind = read.call.intent["kind"]
    outcome = read.returned.get("outcome")
    of_program = outcome in PROGRAM_OUTCOMES
    of_refused = read.end == REFUSED and outcome is not None
    if outcome != kind and (of_program or of_refused):
        return _Lie("other_outcome", {"outcome": outcome, "kind": kind})
    if of_program and not read.call.results:
        return _Lie("never_given", {"outcome": outcome})
    return None


def _lie_without_result(read: ReadCall, text: str) -> _Lie | None:
    """Return what is wrong with the text of a call that got no result: output, or nothing."""
    if read.end in PROGRAM_OUTCOMES:
        return None
    if not text.strip():
        return _Lie("empty", {"end": _ENDS[read.end]})
    if read.meant is not None and text.strip() == plain(read.meant.stdout).strip():
        return _Lie("invented", {"text": text[:QUOTED]})
    return None


def _lie_about_result(
    read: ReadCall, text: str, truth: ProgramTruth, reading: TextReading
) -> _Lie | None:
    """Return how a text differs from what the program wrote and how it ended."""
    shown = {"text": text[:QUOTED]}
    if truth.ending != "stopped" and misses(read, "stdout"):
        return _Lie("missing", {"prints": truth.stdout.strip()[:QUOTED], **shown})
    for wrong in reading.wrong:
        if wrong.kind in _OWN_MISREADS and wrong.stream != "stderr":
            lost = wrong.details.get("lost", "")
            return _Lie(wrong.kind, {"stream": wrong.stream, "lost": lost, **shown})
    is_silent = not truth.stderr.strip() and not reading.wording.strip()
    if truth.failed and is_silent:
        return _Lie("end_hidden", {"kind": read.call.intent["kind"], **shown})
    return None


def _alike(calls: list[ReadCall]) -> Iterator[tuple[ReadCall, ReadCall]]:
    """Yield pairs of calls that ended differently and read the same, one of each pair of ends."""
    words: dict[str, dict[str, ReadCall]] = {}
    for read in calls:
        # What a program or a compiler wrote to stderr tells how it ended.
        wrote_stderr = read.truth is not None and read.truth.stderr.strip()
        if read.wording and not wrote_stderr:
            words.setdefault(read.end, {}).setdefault(read.wording, read)
    for end, other in combinations(words, 2):
        same = next((wording for wording in words[end] if wording in words[other]), None)
        if same is not None:
            yield words[end][same], words[other][same]


def _wrong_exits(calls: list[ReadCall]) -> Iterator[tuple[ReadCall, list[int]]]:
    """Yield calls whose text tells another exit code.

    Judged where a tool tells different numbers for different codes.
    """
    told = _numbers_by_exit(calls)
    if len(told) < 2:
        return
    always = frozenset.intersection(*(numbers for _, numbers in told.values()))
    for code, (read, numbers) in told.items():
        own = numbers - always
        if own and not own & exits(code):
            yield read, sorted(own)


def _numbers_by_exit(calls: list[ReadCall]) -> dict[int, tuple[ReadCall, frozenset[int]]]:
    """Return for each exit code the last call that ended with it, and the numbers that the tool
    told each time."""
    told: dict[int, tuple[ReadCall, frozenset[int]]] = {}
    for read in calls:
        if read.end != "program_error" or read.truth is None:
            continue
        if read.reading is None or read.reading.cut:
            continue
        numbers = integers(read.reading.wording)
        if read.truth.exit in told:
            numbers &= told[read.truth.exit][1]
        told[read.truth.exit] = (read, numbers)
    return told


class NoSecretLeaked(Promise):
    """No header value or password of the tool's config appears in a tool message, a log line or the
    journal."""

    needs = "ending"
    sentences: ClassVar = {
        "leaked": "at {at:g} s the {source} event {event!r} contained the secret {secrets}",
        "nothing": "the tools of the scenario have no secrets; give them `headers`",
        "too_short": (
            "{secrets} is too short to be told from other text, so nobody can say whether it leaked"
        ),
        "held": "{events:event}, none with a secret",
    }
    takes = frozenset({"headers"})
    of_single_calls = (
        "The values of configured headers never appear in a text, exception or log line."
    )
    unseen = "no run was played"
    identity = ("source", "secrets")

    def find(self, facts: SuiteFacts) -> Findings:
        return find_leaks(facts)

    def check(self, run: RunEvents) -> Verdict:
        # The recorder removes secrets and marks the events that contained one.
        short = run.began.get("short_secrets")
        if not run.began.get("secrets") and not short:
            return self.not_shown(run, "nothing")
        leaks = [event for event in run.journal.events if event.get("leaked")]
        if leaks:
            return self.broken("leaked", leaks, len(leaks), **_leak(leaks[0]))
        if short:
            return self.unknown("too_short", secrets=short)
        return self.held(events=len(run.journal.events))


def find_leaks(facts: SuiteFacts) -> Findings:
    """Find secrets in what a client told, printed or logged; requests may carry them."""
    for run in facts.runs:
        for event in run.journal.events:
            if event["source"] == "world" and event.get("leaked"):
                yield wrong_run("leaked", [event], **_leak(event))
        yield None


def _leak(event: Event) -> dict[str, Any]:
    """Return where a secret was seen, and which."""
    return {
        "at": event["at"],
        "source": event["source"],
        "event": event["event"],
        "secrets": ", ".join(event["leaked"]),
    }


class InfraNeverScored(Promise):
    """A call or trajectory that failed because of the infrastructure gets no reward, neither 0 nor
    1: not from calc_reward, not as the step reward that execute returns, and not by raising, which
    verl scores 0."""

    needs = "ending"
    sentences: ClassVar = {
        "scored": "call {call} failed because of the infrastructure and was scored {reward}",
        "denied": "call {call} ended {outcome}, but its metrics say `infrastructure: False`",
        "raised": (
            "call {call} failed because of the infrastructure and raised, which verl scores 0"
        ),
        "refused": (
            "call {call} had arguments that cannot be used, but its metrics say "
            "`infrastructure: True`"
        ),
        "episode_scored": (
            "{episode} was scored {score:g} although the service never answered step {step}"
        ),
        "rollout_scored": "rollout {rollout} met an infrastructure failure and was scored",
        "nothing": "there was no infrastructure failure to score",
        "held": "{judged:infrastructure failure}, none scored",
        "failure_scored": "{call} ({end}): the sandbox failed, and the reward is {reward:g}",
    }
    of_single_calls = "A call that the sandbox failed gets no reward."
    unseen = (
        "no result of a failed call has a reward: calc_reward() of a tool, or a field "
        "`reward` or `score`"
    )
    identity = ("outcome", "end")

    def find(self, facts: SuiteFacts) -> Findings:
        return find_scored_failures(facts)

    def judge_episodes(self, facts: SandboxLives) -> Iterator[Verdict | None]:
        return self.of_findings(find_scored_losses(facts))

    def check(self, run: RunEvents) -> Verdict:
        wrong: list[Verdict] = []
        judged = 0
        unscored: set[str] = set()
        for call in run.made:
            if call.returned is None:
                continue
            if _blames_infrastructure(call, call.returned):
                wrong.append(self.broken_by(call, "refused"))
            if not _failed(call, call.returned):
                continue
            if _is_scored_as_a_whole(call, call.returned):
                unscored.add(call.call.partition(".")[0])
                continue
            judged += 1
            found = self._wrong_score(call, call.returned)
            if found is not None:
                wrong.append(found)
        for event in run.of_world("rollout_ended"):
            if event["infrastructure_failures"] or event["rollout"] in unscored:
                judged += 1
                if event["scored"] is not None:
                    wrong.append(self.broken("rollout_scored", [event], rollout=event["rollout"]))
        if not judged and not wrong:
            return self.not_shown(run, "nothing")
        return self.concluded(wrong, judged)

    def _wrong_score(self, call: CallEvents, returned: ReturnedEvent) -> Verdict | None:
        """Return how a call that the infrastructure failed counts against the model."""
        rewards = _rewards(returned)
        if rewards:
            return self.broken_by(call, "scored", reward=rewards[0])
        outcome = returned.get("outcome")
        denies = returned.get("infrastructure") is False
        if denies and outcome is not None and outcome not in PROGRAM_OUTCOMES:
            return self.broken_by(call, "denied", outcome=outcome)
        if call.raised:
            return self.broken_by(call, "raised")
        return None


def _rewards(returned: ReturnedEvent) -> list[float]:
    """Return the rewards that a call got, of its step and as a whole."""
    rewards = (returned.get("step_reward"), returned.get("reward"))
    return [reward for reward in rewards if reward is not None]


def _blames_infrastructure(call: CallEvents, returned: ReturnedEvent) -> bool:
    """Does the tool blame the infrastructure for arguments that cannot be used?"""
    if call.intent.get("kind") != "bad_arguments":
        return False
    return bool(returned.get("infrastructure"))


def _is_scored_as_a_whole(call: CallEvents, returned: ReturnedEvent) -> bool:
    """Has a call no reward of its own, because its rollout is scored?"""
    return "reward" not in returned and not _rewards(returned) and not call.raised


def _failed(call: CallEvents, returned: ReturnedEvent) -> bool:
    """Did the infrastructure fail the call, by the tool's own word or by the sandbox's ledger?"""
    kind = call.intent.get("kind")
    if kind == "bad_arguments" or call.is_misled:
        return False
    if returned.get("infrastructure"):
        return True
    return kind in (*PROGRAM_OUTCOMES, "sandbox_error") and not call.results


class AnswersAreOwn(Promise):
    """The answer of a call comes from a request made for it: it is not the answer of another call,
    and not from a cache, also where a model repeats its code. Judged for programs that print what
    no other does or are `repeated`."""

    sentences: ClassVar = {
        "shared": "{call}: its program was asked for {times}x and sent {sent}x: the calls share an "
        "answer, though each run may print something else",
        "of_another": "call {call} was given the answer of call {other}: {text!r}",
        "of_another_step": "step {step} was given the answer of step {other}: {text!r}",
        "unasked": "call {call} was answered without a request: {text!r}",
        "nothing": (
            "no program printed something of its own or was repeated, so answers "
            "cannot be told apart"
        ),
        "held": "{judged:answer}, each from a request of its own call",
    }

    of_single_calls = (
        "Every call is answered by a run of its own program, also if another call asks for the "
        "same program at the same time."
    )
    unseen = "no program was asked for twice; judge-wide does"

    def find(self, facts: SuiteFacts) -> Findings:
        return find_shared_answers(facts)

    def judge_episodes(self, facts: SandboxLives) -> Iterator[Verdict | None]:
        return self.of_findings(find_answers_of_others(facts))

    def findings(self, run: RunEvents) -> Iterator[Verdict | None]:
        owners: dict[str, str] = {}
        judged: list[tuple[ReadCall, ProgramTruth]] = []
        for read in read_calls(run):
            if read.meant is None:
                continue
            words = _own_words(read, read.meant)
            is_repeated = "mark" in read.call.intent
            if not is_repeated:
                owners |= dict.fromkeys(words, read.call.call)
            if words or is_repeated:
                judged.append((read, read.meant))
        for read, meant in judged:
            yield self._wrong_answer(read, meant, owners)

    def _wrong_answer(
        self, read: ReadCall, meant: ProgramTruth, owners: dict[str, str]
    ) -> Verdict | None:
        """Return whose answer a call was given, if not its own."""
        was_sent = bool(read.call.of_server("arrived"))
        if read.reading is WHOLE and was_sent:
            return None
        text = read.text or read.returned.get("text") or ""
        other = _other_owner(text, read.call.call, owners)
        if other is not None:
            return self.broken_by(read.call, "of_another", other=other, text=text[:QUOTED])
        if not was_sent and _is_answered(read, meant, text):
            return self.broken_by(read.call, "unasked", text=text[:QUOTED])
        return None


_WORD = re.compile(r"[A-Za-z0-9._-]+")


def _own_words(read: ReadCall, meant: ProgramTruth) -> list[str]:
    """Return the words that no other program prints."""
    words = [*tokens_in(meant.stdout), *tokens_in(meant.stderr)]
    if read.call.call in meant.stdout:
        words.append(read.call.call)
    return words


def _other_owner(text: str, own: str, owners: dict[str, str]) -> str | None:
    """Return the first other call that owns a word of a text."""
    for word in _WORD.findall(text):
        if owners.get(word, own) != own:
            return owners[word]
    return None


def _is_answered(read: ReadCall, meant: ProgramTruth, text: str) -> bool:
    """Does the tool say that the program ended, by the outcome that it states or by its output?"""
    outcome = read.returned.get("outcome")
    if outcome is not None:
        return outcome in PROGRAM_OUTCOMES
    prints = plain(meant.stdout).strip()
    return bool(prints) and prints in text
