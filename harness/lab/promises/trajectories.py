"""Promises about multi-turn rollouts, and about what they tell verl's trainer."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, ClassVar

from pydantic import Field, field_validator

from sfusion_tools.errors import near
from sfusion_tools.rollout.states import EndCause

from ...core.journal import Event
from ...core.run_events import RunEvents
from ...core.verdict import Verdict
from .base import Promise


class RolloutEnds(Promise):
    """Every trajectory ends exactly once; with `by`, for one of these causes. Trajectories of a
    killed worker are lost with it and excused."""

    of_rollouts: ClassVar[bool] = True
    needs = "ending"
    sentences: ClassVar = {
        "never_ended": "rollout {rollout} never ended",
        "ended_often": "rollout {rollout} ended {times} times",
        "other_cause": "rollout {rollout} ended by {cause}, promised {promised} ({failure})",
        "nothing": "no rollout was started",
        "held": "{begun:rollout} ended: {causes}",
    }
    identity = ("cause",)

    by: list[str] | None = Field(
        None, description="allowed causes, such as answered, length, prompt_too_long"
    )

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

    def check(self, run: RunEvents) -> Verdict:
        ends: dict[str, list[Event]] = {}
        for event in run.of_world("rollout_ended"):
            ends.setdefault(event["rollout"], []).append(event)
        lost = {event["rollout"] for event in run.of_world("rollout_lost")}
        begun = [event for event in run.of_world("rollout_started") if event["rollout"] not in lost]
        if not begun:
            return self.unknown("nothing")
        wrong: list[Verdict] = []
        causes: dict[str, int] = {}
        for start in begun:
            name = start["rollout"]
            found = ends.get(name, [])
            if len(found) != 1:
                kind = "ended_often" if found else "never_ended"
                wrong.append(self.broken(kind, [start, *found], rollout=name, times=len(found)))
                continue
            cause = found[0]["ended_by"]
            causes[cause] = causes.get(cause, 0) + 1
            if self.by is not None and cause not in self.by:
                facts = {"rollout": name, "cause": cause, "promised": self.by}
                facts["failure"] = found[0].get("failure") or "no failure stated"
                wrong.append(self.broken("other_cause", [start, *found], **facts))
        if wrong:
            return self.first(wrong)
        return self.held(
            begun=len(begun), causes=[f"{cause} {count}" for cause, count in sorted(causes.items())]
        )


class LengthsConsistent(Promise):
    """The token lists of every trajectory have the same length and respect the limits."""

    of_rollouts: ClassVar[bool] = True
    needs = "ending"
    sentences: ClassVar = {
        "uneven": "rollout {rollout} has {total} input_ids and {found} of {key}",
        "no_sum": (
            "rollout {rollout}: prompt {prompt} and response {response} do not add up to {total}"
        ),
        "too_long": "rollout {rollout}: {found:token}, {bound} is {limit}",
        "prompt_accepted": (
            "rollout {rollout}: a prompt of {prompt:token} exceeds max_prompt_len and was accepted"
        ),
        "prompt_refused": (
            "rollout {rollout}: a prompt of {prompt:token} was refused, although it fits"
        ),
        "nothing": "no rollout ended",
        "held": "{judged:rollout}, the longest with {longest} tokens, all consistent",
    }
    identity = ("key", "bound")

    def check(self, run: RunEvents) -> Verdict:
        ended = run.of_world("rollout_ended")
        wrong = []
        for event in ended:
            problem = _inconsistency(event)
            if problem is not None:
                kind, facts = problem
                wrong.append(self.broken(kind, [event], rollout=event["rollout"], **facts))
        longest = max((event["lengths"]["input_ids"] for event in ended), default=0)
        return self.concluded(wrong, len(ended), longest=longest)


def _inconsistency(event: Event) -> tuple[str, dict[str, Any]] | None:
    """Return in what the lengths of a trajectory contradict each other or its limits."""
    lengths = event["lengths"]
    total = lengths["input_ids"]
    prompt = lengths["prompt"]
    for key in ("attention_mask", "position_ids", "loss_mask"):
        if lengths[key] != total:
            return "uneven", {"total": total, "found": lengths[key], "key": key}
    if prompt + lengths["response"] != total:
        return "no_sum", {"prompt": prompt, "response": lengths["response"], "total": total}
    return _over_limit(event)


def _over_limit(event: Event) -> tuple[str, dict[str, Any]] | None:
    """Return which limit a trajectory exceeds, or why its prompt was refused in vain."""
    limits = event["limits"]
    lengths = event["lengths"]
    prompt = lengths["prompt"]
    was_refused = event["ended_by"] == "prompt_too_long"
    # A prompt that is too long by itself fails before anything is generated.
    for bound, key in (("max_response_len", "response"), ("max_model_len", "input_ids")):
        found = lengths[key]
        limit = limits.get(bound)
        if limit is not None and found > limit and not was_refused:
            return "too_long", {"found": found, "bound": bound, "limit": limit}
    longest = limits.get("max_prompt_len")
    if longest is not None and prompt > longest:
        return None if was_refused else ("prompt_accepted", {"prompt": prompt})
    if was_refused and prompt < (limits.get("max_model_len") or math.inf):
        return "prompt_refused", {"prompt": prompt}
    return None


class OutcomeInExtras(Promise):
    """The outcome of every call reaches verl's trainer: verl drops the metrics of `execute`, so a
    tool leaves it in `agent_data.extra_fields["extras"]`. In rollouts the trajectory counts the
    outcomes of its calls. Does not apply to a tool that states no outcomes."""

    needs = "ending"
    sentences: ClassVar = {
        "not_said": "call {call} ended {outcome}, but the extras do not say so",
        "other_said": "call {call} ended {outcome}, but the extras say {extras}",
        "miscounted": "the calls of rollout {rollout} ended {outcomes}, but it counts {counts}",
        "none_stated": "the tool states no outcomes",
        "nothing": "no call returned",
        "held": "{judged:outcome}, all known to the trainer",
    }
    identity = ("outcome", "extras")

    def check(self, run: RunEvents) -> Verdict:
        if not run.states_outcomes:
            return self.not_shown(run, "none_stated")
        ended = {event["rollout"]: event for event in run.of_world("rollout_ended")}
        rolled = {event["rollout"] for event in run.of_world("rollout_started")}
        wrong: list[Verdict] = []
        stated: dict[str, Counter[str]] = {}
        judged = 0
        for call in run.made:
            returned = call.returned
            if returned is None or returned.get("raised"):
                continue
            outcome = returned.get("outcome")
            rollout = call.call.partition(".")[0]
            if outcome is None:
                continue
            if rollout in ended:
                stated.setdefault(rollout, Counter())[outcome] += 1
            if rollout in rolled:  # one that was lost with its worker counts nothing
                continue
            judged += 1
            if returned.get("extras") != outcome:
                extras = returned.get("extras")
                kind = "other_said" if extras else "not_said"
                wrong.append(self.broken_by(call, kind, outcome=outcome, extras=extras))
        for rollout, outcomes in stated.items():
            judged += outcomes.total()
            event = ended[rollout]
            # A trajectory that is cancelled or fails counts no more.
            counts_all = event["ended_by"] not in ("cancelled", "failed")
            if counts_all and event["outcomes"] != dict(outcomes):
                facts = {"outcomes": dict(outcomes), "counts": event["outcomes"]}
                wrong.append(self.broken("miscounted", [event], rollout=rollout, **facts))
        return self.concluded(wrong, judged)
