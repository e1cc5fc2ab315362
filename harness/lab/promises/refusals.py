"""The promise about calls that are refused."""

from __future__ import annotations

from sfusion.harness.lab.journal import Event
from sfusion.harness.lab.promises.base import Promise, evidence
from sfusion.harness.lab.promises.story import CallStory, Story
from sfusion.harness.lab.promises.texts import explains
from sfusion.harness.lab.promises.verdict import Verdict
from sfusion_tools.wording import counted


class RefusalsTold(Promise):
    """The model reads that its call was refused: for arguments that cannot be used, which do not count as a failure of
    the infrastructure, and by a sandbox that answers 4xx. In rollouts, what a turn `sees` has reached the model."""

    needs = "ending"

    def judge(self, story: Story) -> Verdict:
        wrong: list[tuple[str, list[Event]]] = []
        judged = 0
        for call in story.made:
            why = _refusal(call)
            if why is None or call.returned is None or call.raised:
                continue
            judged += 1
            if (silence := _silence(call, call.returned)) is not None:
                wrong.append((f"call {call.call} was refused ({why}), but {silence}", evidence(call)))
        for event in story.engine:
            if event["event"] == "spoke" and "missed" in event:
                text = f"the model of rollout {event['rollout']} was to read {event['missed']!r} and did not"
                wrong.append((text, [event]))
        judged += sum(sum(event["refused"].values()) for event in story.of_world("rollout_ended"))
        if wrong:
            return self.broken(*wrong[0], len(wrong))
        if not judged:
            return self.unknown("no call was refused")
        return self.held(f"{counted(judged, 'refused call')}, all explained")


def _refusal(call: CallStory) -> str | None:
    if _has_bad_arguments(call):
        return "bad arguments"
    last = call.answers[-1]["status"] if call.answers else 200
    return f"status {last}" if 400 <= last < 500 and last != 429 else None


def _silence(call: CallStory, returned: Event) -> str | None:
    text, outcome = returned.get("text") or "", returned.get("outcome")
    if not text.strip():
        return "the tool message is empty"
    if not explains(text):
        return f"the tool message does not say so: {text[:60]!r}"
    if not _has_bad_arguments(call):
        return None
    if outcome not in (None, "bad_arguments"):
        return f"the tool states the outcome {outcome}"
    if returned.get("infrastructure"):
        return "the tool calls it a failure of the infrastructure"
    return None


def _has_bad_arguments(call: CallStory) -> bool:
    return "bad_arguments" in (call.intent.get("kind"), (call.returned or {}).get("outcome"))
