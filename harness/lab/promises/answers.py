"""The promise that each call gets its own answer."""

from __future__ import annotations

import re

from sfusion.harness.lab.journal import Event
from sfusion.harness.lab.promises.base import Promise, evidence
from sfusion.harness.lab.promises.story import PROGRAM_OUTCOMES, CallStory, Story
from sfusion.harness.lab.promises.texts import explains
from sfusion.harness.lab.promises.verdict import Verdict
from sfusion_tools.wording import counted

_ID = re.compile(r"[A-Za-z0-9._-]+")


class AnswersAreOwn(Promise):
    """The answer of a call comes from a request made for it: it is not the answer of another call, and not from a
    cache, also where a model repeats its code. Judged for programs that print their `{call}` or are `repeated`."""

    def judge(self, story: Story) -> Verdict:
        wrong: list[tuple[str, list[Event]]] = []
        judged = 0
        for call in story.made:
            returned = call.returned
            printed = call.call in call.intent.get("prints", "")
            if returned is None or returned.get("raised") or not (printed or "mark" in call.intent):
                continue
            judged += 1
            text = returned.get("text") or ""
            if (other := _other(call, text, story)) is not None:
                wrong.append((f"call {call.call} was given the answer of call {other}: {text[:60]!r}", evidence(call)))
            elif _looks_answered(call, returned) and not call.of_server("arrived"):
                wrong.append((f"call {call.call} was answered without a request: {text[:60]!r}", evidence(call)))
        if wrong:
            return self.broken(*wrong[0], len(wrong))
        if not judged:
            return self.unknown("no program printed its {call} or was repeated, so answers cannot be told apart")
        return self.held(f"{counted(judged, 'answer')}, each from a request of its own call")


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
