"""Promises about what the model reads and what it is rewarded for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any, ClassVar

from sfusion_tools.outcome import PROGRAM_OUTCOMES
from sfusion_tools.sandbox.text import plain

from ...core.journal import Event
from ...core.run_events import CallEvents, RunEvents
from ...core.verdict import Verdict
from ..facts.canary import tokens_in
from ..facts.read import exits, integers
from ..single_calls.calls import SuiteFacts
from .base import Promise
from .findings import Findings, wrong_run
from .output import misses
from .readings import FAILED, REFUSED, WHOLE, ReadCall, read_calls
from .scores import find_scored_failures
from .single_told import find_misreadings


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
        for one in found:
            kind, facts = _lie(one) or ("", {})
            yield self.broken_by(one.call, kind, **facts) if kind else None
        for one, other in _alike(found):
            facts = {"end": _ENDS[one.end], "kind": _ENDS[other.end], "other": other.call.call}
            yield self.broken_by(one.call, "same_words", text=(one.text or "")[:60], **facts)
        for one, told in _wrong_exits(found):
            exit = one.truth.exit if one.truth else 0
            yield self.broken_by(one.call, "exit_untrue", exit=exit, told=told)
        for event in run.engine:
            if event["event"] == "spoke" and "missed" in event:
                yield self.broken(
                    "not_read", [event], rollout=event["rollout"], missed=event["missed"]
                )


_ENDS = {
    "ok": "succeeded", "program_error": "failed by its program", "program_timeout": "timed out",
    "compile_error": "did not compile", FAILED: "got no result", REFUSED: "was refused",
}  # fmt: skip
_OWN_MISREADS = ("changed", "scrambled", "repeated", "stderr_first")
"""Others are those of promises of their own."""


def _lie(one: ReadCall) -> tuple[str, dict[str, Any]] | None:
    """Return what is untrue about a tool message, or about the outcome that is stated: a kind and
    parameters."""
    kind, outcome, text = one.call.intent["kind"], one.returned.get("outcome"), one.text
    if outcome != kind and (
        outcome in PROGRAM_OUTCOMES or (one.end == REFUSED and outcome is not None)
    ):
        return "other_outcome", {"outcome": outcome, "kind": kind}
    if outcome in PROGRAM_OUTCOMES and not one.call.results:
        return "never_given", {"outcome": outcome}
    if text is None:
        return None
    shown = {"text": text[:60]}
    if one.reading is None or one.truth is None:
        if one.end in PROGRAM_OUTCOMES:
            return None
        if (
            one.meant is not None
            and text.strip()
            and text.strip() == plain(one.meant.stdout).strip()
        ):
            return "invented", shown
        return None if text.strip() else ("empty", {"end": _ENDS[one.end]})
    if one.truth.ending != "stopped" and misses(one, "stdout"):
        return "missing", {"prints": one.truth.stdout.strip()[:60], **shown}
    for wrong in one.reading.wrong:
        if wrong.kind in _OWN_MISREADS and wrong.stream != "stderr":
            return wrong.kind, {
                "stream": wrong.stream,
                "lost": wrong.details.get("lost", ""),
                **shown,
            }
    silent = one.truth.failed and not one.truth.stderr.strip() and not one.reading.wording.strip()
    return ("end_hidden", {"kind": kind, **shown}) if silent else None


def _alike(calls: list[ReadCall]) -> Iterator[tuple[ReadCall, ReadCall]]:
    """Yield pairs of calls that ended differently and read the same, one of each pair of ends."""
    words: dict[str, dict[str, ReadCall]] = {}
    for one in calls:
        # What a program or a compiler wrote to stderr tells how it ended.
        if one.wording and not (one.truth is not None and one.truth.stderr.strip()):
            words.setdefault(one.end, {}).setdefault(one.wording, one)
    for end, other in combinations(words, 2):
        same = next((wording for wording in words[end] if wording in words[other]), None)
        if same is not None:
            yield words[end][same], words[other][same]


def _wrong_exits(calls: list[ReadCall]) -> Iterator[tuple[ReadCall, list[int]]]:
    """Yield calls whose text tells another exit code, where a tool tells different numbers for
    different codes."""
    told: dict[int, tuple[ReadCall, frozenset[int]]] = {}
    for one in calls:
        if (
            one.end == "program_error"
            and one.truth is not None
            and one.reading is not None
            and not one.reading.cut
        ):
            numbers = integers(one.reading.wording)
            seen = told.get(one.truth.exit)
            told[one.truth.exit] = (one, numbers if seen is None else numbers & seen[1])
    always = (
        frozenset.intersection(*(numbers for _, numbers in told.values()))
        if len(told) > 1
        else frozenset()
    )
    for code, (one, numbers) in told.items():
        if len(told) > 1 and (own := numbers - always) and not own & exits(code):
            yield one, sorted(own)


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
            first = leaks[0]
            facts = {"at": first["at"], "source": first["source"], "event": first["event"]}
            return self.broken(
                "leaked", leaks, len(leaks), **facts, secrets=", ".join(first["leaked"])
            )
        return (
            self.unknown("too_short", secrets=short)
            if short
            else self.held(events=len(run.journal.events))
        )


def find_leaks(facts: SuiteFacts) -> Findings:
    """Find secrets in what a client told, printed or logged; requests may carry them."""
    for run in facts.runs:
        for event in run.journal.events:
            if event["source"] == "world" and event.get("leaked"):
                about = {"at": event["at"], "source": "world", "event": event["event"]}
                yield wrong_run("leaked", [event], **about, secrets=", ".join(event["leaked"]))
        yield None


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

    def check(self, run: RunEvents) -> Verdict:
        wrong: list[Verdict] = []
        judged = 0
        rollouts: set[str] = set()
        for call in run.made:
            returned = call.returned
            if (
                returned is not None
                and call.intent.get("kind") == "bad_arguments"
                and returned.get("infrastructure")
            ):
                wrong.append(self.broken_by(call, "refused"))
            if returned is None or not _failed(call, returned):
                continue
            rewards = [
                returned[key] for key in ("step_reward", "reward") if returned.get(key) is not None
            ]
            if "reward" not in returned and not rewards and not call.raised:
                rollouts.add(call.call.partition(".")[0])  # it is scored as a whole
                continue
            judged += 1
            outcome = returned.get("outcome")
            if rewards:
                wrong.append(self.broken_by(call, "scored", reward=rewards[0]))
            elif returned.get("infrastructure") is False and outcome not in (
                None,
                *PROGRAM_OUTCOMES,
            ):
                wrong.append(self.broken_by(call, "denied", outcome=outcome))
            elif call.raised:
                wrong.append(self.broken_by(call, "raised"))
        for event in run.of_world("rollout_ended"):
            if event["infrastructure_failures"] or event["rollout"] in rollouts:
                judged += 1
                if event["scored"] is not None:
                    wrong.append(self.broken("rollout_scored", [event], rollout=event["rollout"]))
        return self.concluded(wrong, judged) if judged or wrong else self.not_shown(run, "nothing")


def _failed(call: CallEvents, returned: Event) -> bool:
    """Did the infrastructure fail the call, by the tool's own word or by the sandbox's ledger?"""
    if call.intent.get("kind") == "bad_arguments" or call.is_misled:
        return False
    stated = returned.get("infrastructure")
    return bool(stated) or (
        call.intent.get("kind") in (*PROGRAM_OUTCOMES, "sandbox_error") and not call.results
    )


class AnswersAreOwn(Promise):
    """The answer of a call comes from a request made for it: it is not the answer of another call,
    and not from a cache, also where a model repeats its code. Judged for programs that print what
    no other does or are `repeated`."""

    sentences: ClassVar = {
        "of_another": "call {call} was given the answer of call {other}: {text!r}",
        "unasked": "call {call} was answered without a request: {text!r}",
        "nothing": (
            "no program printed something of its own or was repeated, so answers "
            "cannot be told apart"
        ),
        "held": "{judged:answer}, each from a request of its own call",
    }

    def findings(self, run: RunEvents) -> Iterator[Verdict | None]:
        owners: dict[str, str] = {}
        judged = []
        for one in read_calls(run):
            meant = one.meant
            words = [] if meant is None else [*tokens_in(meant.stdout), *tokens_in(meant.stderr)]
            if meant is not None and one.call.call in meant.stdout:
                words.append(one.call.call)
            if words and "mark" not in one.call.intent:
                owners |= dict.fromkeys(words, one.call.call)
            if meant is not None and (words or "mark" in one.call.intent):
                judged.append((one, meant))
        for one, meant in judged:
            if one.reading is not None and one.reading is WHOLE and one.call.of_server("arrived"):
                yield None
                continue
            text = one.text or one.returned.get("text") or ""
            others = (owners.get(word) for word in _WORD.findall(text))
            if (
                other := next((name for name in others if name not in (None, one.call.call)), None)
            ) is not None:
                yield self.broken_by(one.call, "of_another", other=other, text=text[:60])
                continue
            outcome, prints = one.returned.get("outcome"), plain(meant.stdout).strip()
            answered = (
                outcome in PROGRAM_OUTCOMES
                if outcome is not None
                else bool(prints) and prints in text
            )
            unasked = answered and not one.call.of_server("arrived")
            yield self.broken_by(one.call, "unasked", text=text[:60]) if unasked else None


_WORD = re.compile(r"[A-Za-z0-9._-]+")
