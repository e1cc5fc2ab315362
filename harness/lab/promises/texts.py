"""Promises about what the model reads and what it is rewarded for."""

from __future__ import annotations

from sfusion.harness.lab.journal import Event
from sfusion.harness.lab.promises.base import Promise, evidence
from sfusion.harness.lab.promises.cut_marks import cut_marks
from sfusion.harness.lab.promises.story import PROGRAM_OUTCOMES, CallStory, Story
from sfusion.harness.lab.promises.verdict import Verdict
from sfusion_tools.sandbox.text import plain
from sfusion_tools.wording import counted

_HEAD = 40
_CUT = ("characters cut", "(truncated)", "may have cut")


class TextIsTruthful(Promise):
    """The model reads what happened: the program's output if it ran, and nothing that looks like output if it did not.
    Compared with what the program does and what the sandbox really executed, whatever the tool states."""

    needs = "ending"

    def judge(self, story: Story) -> Verdict:
        wrong: list[tuple[str, list[Event]]] = []
        judged = 0
        for call in story.made:
            returned = call.returned
            if returned is None or returned.get("raised") or call.intent.get("kind") in (None, "real"):
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
    """Return what is untrue about a tool message, whatever the tool states as the outcome."""
    # Escape codes that a program printed are not shown to the model, and need not be.
    intent, text, outcome = call.intent, plain(returned.get("text") or ""), returned.get("outcome")
    kind, prints = intent["kind"], plain(intent.get("prints", "")).strip()
    if outcome in PROGRAM_OUTCOMES and outcome != kind:
        return f"the outcome is {outcome}, but the program ends with {kind}"
    if outcome in PROGRAM_OUTCOMES and not call.results:
        return f"the outcome is {outcome}, but the sandbox never gave a result"
    if "\ufffd" in text and "\ufffd" not in intent.get("early", "") + prints + intent.get("errors", ""):
        place = max(0, text.index("\ufffd") - 20)
        return f"the tool message has a character that was cut in two: {text[place : place + 40]!r}"
    if not text.strip() and (prints or kind != "ok"):
        return (
            f"expected {prints[:60]!r} in the tool message, found an empty text"
            if prints
            else f"the program ended with {kind}, but the tool message is empty"
        )
    if call.results and kind in ("ok", "program_error") and outcome in (None, "ok", "program_error"):
        # The journal keeps only both ends of a long text; a text cut by the tool keeps at least one end of the output.
        cut = _is_cut(text) or bool(cut_marks(text))
        shortened = cut or returned.get("chars", 0) > len(text)
        ends = [plain(intent.get("ends", prints)).strip()[-_HEAD:]] if cut else []
        sought = [prints[:_HEAD], *ends] if shortened else [prints]
        shown = text + plain(returned.get("tail", ""))
        if not (shortened and intent.get("early")) and not any(one in shown for one in sought):
            return f"the program printed {prints[:60]!r}, but the tool message is {text[:60]!r}"
        if kind == "program_error" and prints and not intent.get("errors") and text.strip() == prints:
            return f"the program failed, but the tool message is only its output: {text[:60]!r}"
        return None
    if call.results and kind in PROGRAM_OUTCOMES and outcome in (None, *PROGRAM_OUTCOMES):
        seen = returned.get("chars", 0) <= len(returned.get("text") or "")  # the journal has all of it
        silent = seen and not explains(text)
        return f"the program ended with {kind}, but the tool message is {text[:60]!r}" if silent else None
    if prints and text.strip() == prints:
        return f"the call got no result, but the tool message looks like output: {text[:60]!r}"
    if outcome not in PROGRAM_OUTCOMES and not explains(text):
        what = "the call got no result" if outcome is None else f"the call ended {outcome}"
        return f"{what}, but the tool message does not say so: {text[:60]!r}"
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

    def judge(self, story: Story) -> Verdict:
        wrong: list[tuple[str, list[Event]]] = []
        judged = 0
        for call in story.made:
            early = call.intent.get("early", "").strip()
            if call.intent.get("kind") != "program_timeout" or not early or call.returned is None:
                continue
            if not call.succeeded:
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

    needs = "ending"

    def judge(self, story: Story) -> Verdict:
        # The recorder removes secrets and marks the events that contained one.
        if not story.began.get("secrets"):
            why = "the tools of the scenario have no secrets; give them `headers`"
            return self.not_applicable(why) if story.foreign else self.unknown(why)
        leaks = [event for event in story.journal.events if event.get("leaked")]
        if leaks:
            first = leaks[0]
            names = ", ".join(first["leaked"])
            text = f"at {first['at']:g} s the {first['source']} event {first['event']!r} contained the secret {names}"
            return self.broken(text, leaks, len(leaks))
        return self.held(f"{counted(len(story.journal.events), 'event')}, none with a secret")


class InfraNeverScored(Promise):
    """A call or trajectory that failed because of the infrastructure gets no reward, neither 0 nor 1: not from
    calc_reward, not as the step reward that execute returns, and not by raising, which verl scores 0."""

    needs = "ending"

    def judge(self, story: Story) -> Verdict:
        wrong: list[tuple[str, list[Event]]] = []
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
            if rewards:
                text = f"call {call.call} failed because of the infrastructure and was scored {rewards[0]}"
                wrong.append((text, evidence(call)))
            elif returned.get("infrastructure") is False and returned.get("outcome") not in (None, *PROGRAM_OUTCOMES):
                text = f"call {call.call} ended {returned['outcome']}, but its metrics say `infrastructure: False`"
                wrong.append((text, evidence(call)))
            elif call.raised:
                text = f"call {call.call} failed because of the infrastructure and raised, which verl scores 0"
                wrong.append((text, evidence(call)))
        for event in story.of_world("rollout_ended"):
            if event["infrastructure_failures"] or event["rollout"] in rollouts:
                judged += 1
                if event["scored"] is not None:
                    text = f"rollout {event['rollout']} met an infrastructure failure and was scored"
                    wrong.append((text, [event]))
        if wrong:
            return self.broken(*wrong[0], len(wrong))
        if not judged:
            why = "there was no infrastructure failure to score"
            return self.not_applicable(why) if story.foreign else self.unknown(why)
        return self.held(f"{counted(judged, 'infrastructure failure')}, none scored")


def _failed(call: CallStory, returned: Event) -> bool:
    """Did the infrastructure fail the call, by the tool's own word or by the sandbox's ledger?"""
    if call.intent.get("kind") == "bad_arguments":
        return False
    stated = returned.get("infrastructure")
    return bool(stated) or (call.intent.get("kind") in (*PROGRAM_OUTCOMES, "sandbox_error") and not call.results)
