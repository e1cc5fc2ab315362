"""Promises about what the model reads and what it is rewarded for."""

from __future__ import annotations

from sfusion.harness.journal import Event
from sfusion.harness.promises.base import Promise, evidence
from sfusion.harness.promises.story import CallStory, Story
from sfusion.harness.promises.verdict import Verdict
from sfusion_tools.outcome import Outcome
from sfusion_tools.wording import counted

_PROGRAMS = frozenset(outcome.value for outcome in Outcome if outcome.is_from_program)
_HEAD = 40
_CUT = ("characters cut", "(truncated)", "may have cut")


class TextIsTruthful(Promise):
    """The model reads what happened: the program's output if it ran, and nothing that looks like output if it did not.
    Compared with what the program does and what the sandbox really executed."""

    def judge(self, story: Story) -> Verdict:
        wrong: list[tuple[str, list[Event]]] = []
        judged = 0
        for call in story.made:
            returned = call.returned
            if returned is None or call.intent.get("kind") in (None, "real"):
                continue
            judged += 1
            lie = _lie(call, returned)
            if lie is not None:
                wrong.append((f"call {call.call}: {lie}", evidence(call)))
        if wrong:
            return self.broken(*wrong[0], len(wrong))
        if not judged:
            return self.unknown("no call returned a text that could be judged")
        return self.held(f"{counted(judged, 'tool message')}, all true")


def _lie(call: CallStory, returned: Event) -> str | None:
    intent, text, outcome = call.intent, returned.get("text") or "", returned.get("outcome")
    kind, prints = intent["kind"], intent.get("prints", "").strip()
    if outcome in _PROGRAMS and outcome != kind:
        return f"the outcome is {outcome}, but the program ends with {kind}"
    if outcome is None and kind in _PROGRAMS and not _answered(call) and not _explains(text):
        return f"the sandbox did not answer, but the tool message is {text[:60]!r}"
    if not text.strip() and (prints or kind != "ok"):
        return (
            f"expected {prints[:60]!r} in the tool message, found an empty text"
            if prints
            else f"the program ended with {kind}, but the tool message is empty"
        )
    if outcome in (None, "ok", "program_error") and _answered(call) and kind in ("ok", "program_error"):
        # The journal keeps only the beginning of a long text; a text cut by the tool keeps its own beginning.
        shortened = returned.get("chars", 0) > len(text) or _is_cut(text)
        sought = "" if shortened and intent.get("early") else prints[:_HEAD] if shortened else prints
        if sought not in text:
            return f"the program printed {prints[:60]!r}, but the tool message is {text[:60]!r}"
    elif outcome is not None and outcome not in _PROGRAMS and prints and text.strip() == prints:
        return f"the call ended {outcome}, but the tool message looks like output: {text[:60]!r}"
    return None


def _answered(call: CallStory) -> bool:
    return any(event["status"] == 200 and not event.get("client_gone") for event in call.of_server("answered"))


def _explains(text: str) -> bool:
    # Other tools may word it as they like, but a bare placeholder looks like output.
    words = text.lower()
    return any(word in words for word in ("error", "fail", "timeout", "timed out", "not reach", "unavailable", "busy"))


def _is_cut(text: str) -> bool:
    return any(mark in text for mark in _CUT)


class PartialOutputKept(Promise):
    """What a program printed before its timeout reaches the model."""

    def judge(self, story: Story) -> Verdict:
        wrong: list[tuple[str, list[Event]]] = []
        judged = 0
        for call in story.made:
            early = call.intent.get("early", "").strip()
            if call.intent.get("kind") != "program_timeout" or not early or call.returned is None:
                continue
            if not _answered(call):
                continue
            judged += 1
            text = call.returned.get("text") or ""
            if early not in text and not _is_cut(text):
                sentence = (
                    f"call {call.call} printed {early[:60]!r} before its timeout, but the tool message is {text[:60]!r}"
                )
                wrong.append((sentence, evidence(call)))
        if wrong:
            return self.broken(*wrong[0], len(wrong))
        if not judged:
            return self.unknown("no program that had printed something timed out")
        return self.held(f"{counted(judged, 'timeout')}, all with the output so far")


class NoSecretLeaked(Promise):
    """No header value or password of the tool's config appears in a tool message, a log line or the journal."""

    def judge(self, story: Story) -> Verdict:
        # The recorder removes secrets and marks the events that contained one.
        if not story.began.get("secrets"):
            return self.unknown("the tools of the scenario have no secrets; give them `headers`")
        leaks = [event for event in story.journal.events if event.get("leaked")]
        if leaks:
            first = leaks[0]
            names = ", ".join(first["leaked"])
            text = f"at {first['at']:g} s the {first['source']} event {first['event']!r} contained the secret {names}"
            return self.broken(text, leaks, len(leaks))
        return self.held(f"{counted(len(story.journal.events), 'event')}, none with a secret")


class InfraNeverScored(Promise):
    """A call or trajectory that failed because of the infrastructure gets no reward, neither 0 nor 1."""

    def judge(self, story: Story) -> Verdict:
        wrong: list[tuple[str, list[Event]]] = []
        judged = 0
        for call in story.made:
            returned = call.returned
            if returned is None or "reward" not in returned:
                continue
            stated = returned.get("infrastructure")
            failed = stated if stated is not None else call.intent.get("kind") in _PROGRAMS and not _answered(call)
            if not failed:
                continue
            judged += 1
            if returned["reward"] is not None:
                text = f"call {call.call} failed because of the infrastructure and was scored {returned['reward']}"
                wrong.append((text, evidence(call)))
        for event in story.of_world("rollout_ended"):
            if event["infrastructure_failures"]:
                judged += 1
                if event["scored"] is not None:
                    text = f"rollout {event['rollout']} met an infrastructure failure and was scored"
                    wrong.append((text, [event]))
        if wrong:
            return self.broken(*wrong[0], len(wrong))
        if not judged:
            return self.unknown("there was no infrastructure failure to score")
        return self.held(f"{counted(judged, 'infrastructure failure')}, none scored")
