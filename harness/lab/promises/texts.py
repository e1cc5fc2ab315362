"""Promises about what the model reads and what it is rewarded for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import repeat
from typing import ClassVar

from sfusion.harness.lab.journal import Event
from sfusion.harness.lab.promises.base import Promise
from sfusion.harness.lab.promises.output import cut_marks
from sfusion.harness.lab.promises.story import PROGRAM_OUTCOMES, CallStory, Story
from sfusion.harness.lab.promises.verdict import Verdict
from sfusion_tools.sandbox.text import plain

_HEAD = 40
_CUT = ("characters cut", "(truncated)", "may have cut")


class TextIsTruthful(Promise):
    """The model reads what happened: the program's output if it ran, and nothing that looks like output if it did not.
    Compared with what the program does and what the sandbox really executed, whatever the tool states."""

    needs = "ending"
    sentences: ClassVar = {
        "other_outcome": "call {call}: the outcome is {outcome}, but the program ends with {kind}",
        "never_given": "call {call}: the outcome is {outcome}, but the sandbox never gave a result",
        "cut_in_two": "call {call}: the tool message has a character that was cut in two: {text!r}",
        "output_missing": "call {call}: expected {prints!r} in the tool message, found an empty text",
        "empty": "call {call}: the program ended with {kind}, but the tool message is empty",
        "other_output": "call {call}: the program printed {prints!r}, but the tool message is {text!r}",
        "error_hidden": "call {call}: the program failed, but the tool message is only its output: {text!r}",
        "end_hidden": "call {call}: the program ended with {kind}, but the tool message is {text!r}",
        "invented": "call {call}: the call got no result, but the tool message looks like output: {text!r}",
        "loss_hidden": "call {call}: the call got no result, but the tool message does not say so: {text!r}",
        "failure_hidden": "call {call}: the call ended {outcome}, but the tool message does not say so: {text!r}",
        "nothing": "no call returned a text that could be judged",
        "held": "{judged:tool message}, all true",
    }
    identity = ("outcome", "kind")

    def checks(self, story: Story) -> Iterator[Verdict | None]:
        for call in story.made:
            returned = call.returned
            if returned is None or returned.get("raised") or call.intent.get("kind") in (None, "real"):
                continue
            kind, facts = _lie(call, returned) or ("", {})
            yield self.broken_by(call, kind, **facts) if kind else None


def _lie(call: CallStory, returned: Event) -> tuple[str, dict[str, str]] | None:
    """Return what is untrue about a tool message, whatever the tool states as the outcome: a kind and parameters."""
    # Escape codes that a program printed are not shown to the model, and need not be.
    intent, text, outcome = call.intent, plain(returned.get("text") or ""), returned.get("outcome")
    kind, prints = intent["kind"], plain(intent.get("prints", "")).strip()
    if outcome in PROGRAM_OUTCOMES and outcome != kind:
        return "other_outcome", {"outcome": outcome, "kind": kind}
    if outcome in PROGRAM_OUTCOMES and not call.results:
        return "never_given", {"outcome": outcome}
    if "\ufffd" in text and "\ufffd" not in intent.get("early", "") + prints + intent.get("errors", ""):
        place = max(0, text.index("\ufffd") - 20)
        return "cut_in_two", {"text": text[place : place + 40]}
    if not text.strip() and (prints or kind != "ok"):
        return ("output_missing", {"prints": prints[:60]}) if prints else ("empty", {"kind": kind})
    if call.results and kind in ("ok", "program_error") and outcome in (None, "ok", "program_error"):
        # The journal keeps only both ends of a long text; a text cut by the tool keeps at least one end of the output.
        cut = _is_cut(text) or bool(cut_marks(text))
        shortened = cut or returned.get("chars", 0) > len(text)
        ends = [plain(intent.get("ends", prints)).strip()[-_HEAD:]] if cut else []
        sought = [prints[:_HEAD], *ends] if shortened else [prints]
        shown = text + plain(returned.get("tail", ""))
        if not (shortened and intent.get("early")) and not any(one in shown for one in sought):
            return "other_output", {"prints": prints[:60], "text": text[:60]}
        if kind == "program_error" and prints and not intent.get("errors") and text.strip() == prints:
            return "error_hidden", {"text": text[:60]}
        return None
    if call.results and kind in PROGRAM_OUTCOMES and outcome in (None, *PROGRAM_OUTCOMES):
        seen = returned.get("chars", 0) <= len(returned.get("text") or "")  # the journal has all of it
        silent = seen and not explains(text)
        return ("end_hidden", {"kind": kind, "text": text[:60]}) if silent else None
    if prints and text.strip() == prints:
        return "invented", {"text": text[:60]}
    if outcome not in PROGRAM_OUTCOMES and not explains(text):
        stated = {"text": text[:60]} if outcome is None else {"outcome": outcome, "text": text[:60]}
        return "loss_hidden" if outcome is None else "failure_hidden", stated
    return None


_EXPLAINING = ("error", "fail", "timeout", "timed out", "not reach", "unreachable", "unavailable", "busy", "refused",
               "invalid", "exception", "not run", "unknown", "missing", "must ", "cannot", "could not", "rejected",
               "throttled", "too many", "cancel", "compile", "time limit",
               "错误", "失败", "超时", "故障", "异常", "无法", "拒绝", "不可用")  # fmt: skip


def explains(text: str) -> bool:
    # Other tools may word it as they like, but a bare placeholder looks like output.
    words = text.lower()
    return any(word in words for word in _EXPLAINING)


def _is_cut(text: str) -> bool:
    return any(mark in text for mark in _CUT)


class PartialOutputKept(Promise):
    """What a program printed before its timeout reaches the model."""

    sentences: ClassVar = {
        "dropped": "call {call} printed {prints!r} before its timeout, but the tool message is {text!r}",
        "nothing": "no program that had printed something timed out",
        "held": "{judged:timeout}, all with the output so far",
    }

    def checks(self, story: Story) -> Iterator[Verdict | None]:
        for call in story.made:
            early = call.intent.get("early", "").strip()
            if call.intent.get("kind") != "program_timeout" or not early or call.returned is None or not call.succeeded:
                continue
            text = call.returned.get("text") or ""
            lost = early not in text and not _is_cut(text)
            yield self.broken_by(call, "dropped", prints=early[:60], text=text[:60]) if lost else None


class NoSecretLeaked(Promise):
    """No header value or password of the tool's config appears in a tool message, a log line or the journal."""

    needs = "ending"
    sentences: ClassVar = {
        "leaked": "at {at:g} s the {source} event {event!r} contained the secret {secrets}",
        "nothing": "the tools of the scenario have no secrets; give them `headers`",
        "too_short": "{secrets} is too short to be told from other text, so nobody can say whether it leaked",
        "held": "{events:event}, none with a secret",
    }
    identity = ("source", "secrets")

    def judge(self, story: Story) -> Verdict:
        # The recorder removes secrets and marks the events that contained one.
        short = story.began.get("short_secrets")
        if not story.began.get("secrets") and not short:
            return self.not_shown(story, "nothing")
        leaks = [event for event in story.journal.events if event.get("leaked")]
        if leaks:
            first = leaks[0]
            facts = {"at": first["at"], "source": first["source"], "event": first["event"]}
            return self.broken("leaked", leaks, len(leaks), **facts, secrets=", ".join(first["leaked"]))
        return self.unknown("too_short", secrets=short) if short else self.held(events=len(story.journal.events))


class InfraNeverScored(Promise):
    """A call or trajectory that failed because of the infrastructure gets no reward, neither 0 nor 1: not from
    calc_reward, not as the step reward that execute returns, and not by raising, which verl scores 0."""

    needs = "ending"
    sentences: ClassVar = {
        "scored": "call {call} failed because of the infrastructure and was scored {reward}",
        "denied": "call {call} ended {outcome}, but its metrics say `infrastructure: False`",
        "raised": "call {call} failed because of the infrastructure and raised, which verl scores 0",
        "rollout_scored": "rollout {rollout} met an infrastructure failure and was scored",
        "nothing": "there was no infrastructure failure to score",
        "held": "{judged:infrastructure failure}, none scored",
    }
    identity = ("outcome",)

    def judge(self, story: Story) -> Verdict:
        wrong: list[Verdict] = []
        judged = 0
        rollouts: set[str] = set()
        for call in story.made:
            returned = call.returned
            if returned is None or not _failed(call, returned):
                continue
            rewards = [returned[key] for key in ("step_reward", "reward") if returned.get(key) is not None]
            if "reward" not in returned and not rewards and not call.raised:
                rollouts.add(call.call.partition(".")[0])  # it is scored as a whole
                continue
            judged += 1
            outcome = returned.get("outcome")
            if rewards:
                wrong.append(self.broken_by(call, "scored", reward=rewards[0]))
            elif returned.get("infrastructure") is False and outcome not in (None, *PROGRAM_OUTCOMES):
                wrong.append(self.broken_by(call, "denied", outcome=outcome))
            elif call.raised:
                wrong.append(self.broken_by(call, "raised"))
        for event in story.of_world("rollout_ended"):
            if event["infrastructure_failures"] or event["rollout"] in rollouts:
                judged += 1
                if event["scored"] is not None:
                    wrong.append(self.broken("rollout_scored", [event], rollout=event["rollout"]))
        return self.concluded(wrong, judged) if judged else self.not_shown(story, "nothing")


def _failed(call: CallStory, returned: Event) -> bool:
    """Did the infrastructure fail the call, by the tool's own word or by the sandbox's ledger?"""
    if call.intent.get("kind") == "bad_arguments":
        return False
    stated = returned.get("infrastructure")
    return bool(stated) or (call.intent.get("kind") in (*PROGRAM_OUTCOMES, "sandbox_error") and not call.results)


_ID = re.compile(r"[A-Za-z0-9._-]+")


class AnswersAreOwn(Promise):
    """The answer of a call comes from a request made for it: it is not the answer of another call, and not from a
    cache, also where a model repeats its code. Judged for programs that print their `{call}` or are `repeated`."""

    sentences: ClassVar = {
        "of_another": "call {call} was given the answer of call {other}: {text!r}",
        "unasked": "call {call} was answered without a request: {text!r}",
        "nothing": "no program printed its {{call}} or was repeated, so answers cannot be told apart",
        "held": "{judged:answer}, each from a request of its own call",
    }

    def checks(self, story: Story) -> Iterator[Verdict | None]:
        for call in story.made:
            returned = call.returned
            printed = call.call in call.intent.get("prints", "")
            if returned is None or returned.get("raised") or not (printed or "mark" in call.intent):
                continue
            text = returned.get("text") or ""
            if (other := _other(call, text, story)) is not None:
                yield self.broken_by(call, "of_another", other=other, text=text[:60])
            else:
                unasked = _looks_answered(call, returned) and not call.of_server("arrived")
                yield self.broken_by(call, "unasked", text=text[:60]) if unasked else None


def _other(call: CallStory, text: str, story: Story) -> str | None:
    """Return another call whose output is in the text."""
    for found in _ID.findall(text):
        other = story.calls.get(found)
        if found != call.call and other is not None and found in other.intent.get("prints", ""):
            return str(found)
    return None


def _looks_answered(call: CallStory, returned: Event) -> bool:
    outcome = returned.get("outcome")
    if outcome is not None:
        return outcome in PROGRAM_OUTCOMES
    prints = call.intent.get("prints", "").strip()
    text = returned.get("text") or ""
    return prints in text if prints else not explains(text)


class RefusalsTold(Promise):
    """The model reads that its call was refused: for arguments that cannot be used, which do not count as a failure of
    the infrastructure, and by a sandbox that answers 4xx. In rollouts, what a turn `sees` has reached the model."""

    needs = "ending"
    sentences: ClassVar = {
        "empty": "call {call} was refused ({refusal}), but the tool message is empty",
        "not_said": "call {call} was refused ({refusal}), but the tool message does not say so: {text!r}",
        "other_outcome": "call {call} was refused ({refusal}), but the tool states the outcome {outcome}",
        "infrastructure": "call {call} was refused ({refusal}), but the tool calls it a failure of the infrastructure",
        "not_read": "the model of rollout {rollout} was to read {missed!r} and did not",
        "nothing": "no call was refused",
        "held": "{judged:refused call}, all explained",
    }
    identity = ("outcome",)

    def checks(self, story: Story) -> Iterator[Verdict | None]:
        for call in story.made:
            refusal = _refusal(call)
            if refusal is not None and call.returned is not None and not call.raised:
                kind, facts = _silence(call, call.returned) or ("", {})
                yield self.broken_by(call, kind, refusal=refusal, **facts) if kind else None
        for event in story.engine:
            if event["event"] == "spoke" and "missed" in event:
                yield self.broken("not_read", [event], rollout=event["rollout"], missed=event["missed"])
        for event in story.of_world("rollout_ended"):
            yield from repeat(None, sum(event["refused"].values()))


def _refusal(call: CallStory) -> str | None:
    if _has_bad_arguments(call):
        return "bad arguments"
    last = call.answers[-1]["status"] if call.answers else 200
    return f"status {last}" if 400 <= last < 500 and last != 429 else None


def _silence(call: CallStory, returned: Event) -> tuple[str, dict[str, str]] | None:
    text, outcome = returned.get("text") or "", returned.get("outcome")
    if not text.strip():
        return "empty", {}
    if not explains(text):
        return "not_said", {"text": text[:60]}
    if not _has_bad_arguments(call):
        return None
    if outcome not in (None, "bad_arguments"):
        return "other_outcome", {"outcome": outcome}
    return ("infrastructure", {}) if returned.get("infrastructure") else None


def _has_bad_arguments(call: CallStory) -> bool:
    return "bad_arguments" in (call.intent.get("kind"), (call.returned or {}).get("outcome"))
