"""Promises about multi-turn rollouts."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from pydantic import Field, field_validator

from sfusion.harness.lab.journal import Event
from sfusion.harness.lab.promises.base import Promise
from sfusion.harness.lab.promises.story import Story
from sfusion.harness.lab.promises.verdict import Verdict
from sfusion_tools.errors import near
from sfusion_tools.rollout.states import EndCause
from sfusion_tools.wording import counted


class RolloutEnds(Promise):
    """Every trajectory ends exactly once; with `by`, for one of these causes. Trajectories of a killed worker are lost
    with it and excused."""

    of_rollouts: ClassVar[bool] = True
    needs = "ending"

    by: list[str] | None = Field(None, description="allowed causes, such as answered, length, prompt_too_long")

    @classmethod
    def from_scalar(cls, value: Any) -> dict[str, Any]:
        return {"by": [value] if isinstance(value, str) else value}

    @field_validator("by")
    @classmethod
    def _known(cls, value: list[str] | None) -> list[str] | None:
        causes = [cause.value for cause in EndCause]
        for cause in value or ():
            if cause not in causes:
                raise ValueError(f"{cause!r} is not a cause; {near(cause, causes)}")
        return value

    def judge(self, story: Story) -> Verdict:
        ends: dict[str, list[Event]] = {}
        for event in story.of_world("rollout_ended"):
            ends.setdefault(event["rollout"], []).append(event)
        lost = {event["rollout"] for event in story.of_world("rollout_lost")}
        begun = [event for event in story.of_world("rollout_started") if event["rollout"] not in lost]
        if not begun:
            return self.unknown("no rollout was started")
        wrong: list[tuple[str, list[Event]]] = []
        causes: dict[str, int] = {}
        for start in begun:
            name = start["rollout"]
            found = ends.get(name, [])
            if len(found) != 1:
                how = "never ended" if not found else f"ended {len(found)} times"
                wrong.append((f"rollout {name} {how}", [start, *found]))
                continue
            cause = found[0]["ended_by"]
            causes[cause] = causes.get(cause, 0) + 1
            if self.by is not None and cause not in self.by:
                why = found[0].get("failure") or "no failure stated"
                text = f"rollout {name} ended by {cause}, promised {', '.join(self.by)} ({why})"
                wrong.append((text, [start, *found]))
        if wrong:
            return self.broken(*wrong[0], len(wrong))
        summary = ", ".join(f"{cause} {count}" for cause, count in sorted(causes.items()))
        return self.held(f"{counted(len(begun), 'rollout')} ended: {summary}")


class LengthsConsistent(Promise):
    """The token lists of every trajectory have the same length and respect the limits."""

    of_rollouts: ClassVar[bool] = True
    needs = "ending"

    def judge(self, story: Story) -> Verdict:
        ended = story.of_world("rollout_ended")
        if not ended:
            return self.unknown("no rollout ended")
        wrong = [(text, [event]) for event in ended if (text := _inconsistency(event)) is not None]
        if wrong:
            return self.broken(*wrong[0], len(wrong))
        longest = max(event["lengths"]["input_ids"] for event in ended)
        return self.held(f"{counted(len(ended), 'rollout')}, the longest with {longest} tokens, all consistent")


def _inconsistency(event: Event) -> str | None:
    name, lengths, limits = event["rollout"], event["lengths"], event["limits"]
    total = lengths["input_ids"]
    prompt = counted(lengths["prompt"], "token")
    for key in ("attention_mask", "position_ids", "loss_mask"):
        if lengths[key] != total:
            return f"rollout {name} has {total} input_ids and {lengths[key]} of {key}"
    if lengths["prompt"] + lengths["response"] != total:
        return f"rollout {name}: prompt {lengths['prompt']} and response {lengths['response']} do not add up to {total}"
    for bound, found in (("max_response_len", lengths["response"]), ("max_model_len", total)):
        # A prompt that is too long by itself fails before anything is generated.
        if limits.get(bound) is not None and found > limits[bound] and event["ended_by"] != "prompt_too_long":
            return f"rollout {name}: {counted(found, 'token')}, {bound} is {limits[bound]}"
    if limits.get("max_prompt_len") is not None and lengths["prompt"] > limits["max_prompt_len"]:
        if event["ended_by"] != "prompt_too_long":
            return f"rollout {name}: a prompt of {prompt} exceeds max_prompt_len and was accepted"
    elif event["ended_by"] == "prompt_too_long" and lengths["prompt"] < (limits.get("max_model_len") or math.inf):
        return f"rollout {name}: a prompt of {prompt} was refused, although it fits"
    return None
