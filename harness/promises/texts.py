"""Promises about what the model reads and is rewarded for."""

from __future__ import annotations

from sfusion.harness.journal import Event
from sfusion.harness.promises.base import Promise, whole
from sfusion.harness.promises.story import CallStory, Story
from sfusion.harness.promises.verdict import Verdict
from sfusion_tools.outcome import Outcome

_PROGRAMS = frozenset(outcome.value for outcome in Outcome if outcome.is_programs)
_HEAD = 40
_CUT = ("characters cut", "(truncated)", "may have cut")


class TextIsTruthful(Promise):
    """The model is told what happened: a program's own output when it ran, and never something that could be taken
    for output when it did not. Judged against what the program does and what the sandbox really executed."""

    def judge(self, story: Story) -> Verdict:
        """Compare each text with the program's intent and the ledger."""
        wrong: list[tuple[str, list[Event]]] = []
        judged = 0
        for call in story.made:
            returned = call.returned
            if returned is None or call.intent.get("kind") in (None, "real"):
                continue
            judged += 1
            lie = _lie(call, returned)
            if lie is not None:
                wrong.append((f"call {call.call}: {lie}", whole(call)))
        if wrong:
            return self.broken(*wrong[0], len(wrong))
        if not judged:
            return self.unknown("no call returned a text that could be judged")
        return self.held(f"{judged} texts say what happened")


def _lie(call: CallStory, returned: Event) -> str | None:
    intent, text, outcome = call.intent, returned.get("text") or "", returned.get("outcome")
    kind, prints = intent["kind"], intent.get("prints", "").strip()
    if outcome in _PROGRAMS and outcome != kind:
        return f"the model is told {outcome}, but the program's ending is {kind}"
    if outcome is None and kind in _PROGRAMS and not _answered(call) and not _explains(text):
        return f"no answer of the sandbox was heard, and the model reads {text[:60]!r}"
    if not text.strip() and (prints or kind != "ok"):
        return "the model reads nothing, although there is something to say"
    if outcome in (None, "ok", "program_error") and _answered(call) and kind in ("ok", "program_error"):
        # Of a long text the journal keeps the beginning, and a cut one keeps its own.
        shortened = returned.get("chars", 0) > len(text) or _is_cut(text)
        sought = "" if shortened and intent.get("early") else prints[:_HEAD] if shortened else prints
        if sought not in text:
            return f"the program printed {prints[:60]!r}, and the model reads {text[:60]!r}"
    elif outcome is not None and outcome not in _PROGRAMS and prints and text.strip() == prints:
        return f"the call ended {outcome}, and the model reads {text[:60]!r} like output"
    return None


def _answered(call: CallStory) -> bool:
    return any(event["status"] == 200 and not event.get("client_gone") for event in call.of_server("answered"))


def _explains(text: str) -> bool:
    # A foreign tool's words are free, but some have to be there: a bare placeholder looks like output.
    words = text.lower()
    return any(word in words for word in ("error", "fail", "timeout", "timed out", "not reach", "unavailable", "busy"))


def _is_cut(text: str) -> bool:
    return any(mark in text for mark in _CUT)


class PartialOutputKept(Promise):
    """What a program printed before it was stopped for time reaches the model."""

    def judge(self, story: Story) -> Verdict:
        """Look for the early output of every program that was stopped."""
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
                    f"call {call.call} printed {early[:60]!r} before it was stopped; the model reads {text[:60]!r}"
                )
                wrong.append((sentence, whole(call)))
        if wrong:
            return self.broken(*wrong[0], len(wrong))
        if not judged:
            return self.unknown("no program that had printed something was stopped for time")
        return self.held(f"{judged} stopped programs, and what they had printed was kept")


class NoSecretLeaked(Promise):
    """No header value or password of the tool's config reaches a text, a log line or the journal."""

    def judge(self, story: Story) -> Verdict:
        """The world marks each event in which a secret stood, and takes it out."""
        if not story.began.get("secrets"):
            return self.unknown("the scenario's tools have no secret: give them `headers`")
        leaks = [event for event in story.journal.events if event.get("leaked")]
        if leaks:
            first = leaks[0]
            names = ", ".join(first["leaked"])
            text = f"at {first['at']:g} s the secret {names} stood in a {first['source']} event {first['event']!r}"
            return self.broken(text, leaks, len(leaks))
        return self.held(f"{len(story.journal.events)} events and texts, none with a secret")


class InfraNeverScored(Promise):
    """A call, or a trajectory, that failed for reasons which are not the model's gets no reward, neither 0 nor 1."""

    def judge(self, story: Story) -> Verdict:
        """Compare rewards with what the sandbox really did."""
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
                text = f"call {call.call} failed through no fault of the model and was scored {returned['reward']}"
                wrong.append((text, whole(call)))
        for event in story.of_world("rollout_ended"):
            if event["infrastructure_failures"]:
                judged += 1
                if event["scored"] is not None:
                    text = f"rollout {event['rollout']} met a failure that is not the model's and was scored"
                    wrong.append((text, [event]))
        if wrong:
            return self.broken(*wrong[0], len(wrong))
        if not judged:
            return self.unknown("nothing failed for reasons outside the model, so there was nothing to score wrongly")
        return self.held(f"{judged} failures of the infrastructure, none scored")
