"""Promises about what a toy training learned, judged against its twin without faults.

None of them applies to a training in which no sample lost a call and nothing else came between it
and its twin: it could not have been broken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from ...core.journal import Event
from ...core.run_events import RunEvents
from ...core.verdict import Verdict
from .base import Need, Promise

if TYPE_CHECKING:
    from ..scenarios.training import TrainingPart

_SIGN = 1e-3
"""A mean push of at most this has no sign (chosen: a hundredth of what a clear step pushes)."""
_ERRORS = 3.0
"""Nor has one of at most this many standard errors: steps push this way and that by chance."""
_LONE_STEP = 0.1
"""A single step has no standard error; this is what the pushes of steps of 8 samples differ by
without any fault (seen in the twins of the bundled trainings)."""
_NEVER = "no sample lost a call, so there is nothing to judge"


class _OfTraining:
    of_rollouts: ClassVar[bool] = True
    of_training: ClassVar[bool] = True
    implied: ClassVar[bool] = False
    needs: ClassVar[Need] = "ending"


def untouched(steps: Sequence[Event]) -> bool:
    """Did no sample lose a call, and did the training go as its twin?"""
    return all(not step["lost"] and step["p"] == step["twin"]["p"] for step in steps)


class _OfToolUse(_OfTraining):
    least_calls: ClassVar[int] = 1
    """Behaviours with this many calls are what is kept or unlearned."""

    def cannot_fail(self, training: TrainingPart) -> str:
        doing = [behaviour.calls >= self.least_calls for behaviour in training.behaviours]
        if any(doing) and not all(doing):
            return ""
        what = "call the tool"
        if self.least_calls > 1:
            what = f"make {self.least_calls} calls or more"
        return f"{'all' if all(doing) else 'none'} of the behaviours {what}"


class ToolUseKept(_OfToolUse, Promise):
    """At the end of a training, the toy uses the tool nearly as often as its twin without
    faults."""

    sentences: ClassVar = {
        "unlearned": (
            "P({what}) is {found:.2f} at the end, the twin's is {twin:.2f}; "
            "promised at most {within:g} less"
        ),
        "nothing": "no step was trained",
        "never": _NEVER,
        "held": "P({what}) is {found:.2f} at the end, the twin's {twin:.2f}",
    }
    scalar = "within"
    what: ClassVar[str] = "tool"
    within: float = Field(
        0.1, ge=0, lt=1, description="how much less likely it may be than in the twin"
    )

    def check(self, run: RunEvents) -> Verdict:
        steps = run.of_world("trained")
        if not steps:
            return self.unknown("nothing")
        if untouched(steps):
            return self.not_applicable("never")
        key = self.what.partition(" ")[0]
        found = steps[-1][key]
        twin = steps[-1]["twin"][key]
        facts = {"what": self.what, "found": found, "twin": twin, "within": self.within}
        if found < twin - self.within:
            return self.broken("unlearned", steps[-1:], **facts)
        return self.held(**facts)


class SeveralCallsKept(ToolUseKept):
    """At the end of a training, the toy makes several calls nearly as often as its twin: long
    trajectories lose more calls, so they are unlearned first."""

    least_calls: ClassVar[int] = 2
    what: ClassVar[str] = "several calls"
    within: float = Field(
        0.2, ge=0, lt=1, description="how much less likely they may be than in the twin"
    )


class ToolUseRecovers(_OfToolUse, Promise):
    """After the last lost sample, the toy uses the tool as its twin does within a number of
    steps."""

    sentences: ClassVar = {
        "not_back": (
            "P(tool) is {found:.2f} {after:step} after the last lost sample, the "
            "twin's is {twin:.2f}"
        ),
        "too_short": (
            "the training ends {after:step} after the last lost sample; {steps} are needed to judge"
        ),
        "nothing": "no step was trained",
        "held": (
            "P(tool) is within {within:g} of the twin's {after:step} after the last lost sample"
        ),
        "never": _NEVER,
    }
    scalar = "steps"
    steps: int = Field(5, ge=0, description="number of steps after the last one with a lost sample")
    within: float = Field(
        0.1, ge=0, lt=1, description="how far from the twin's P(tool) counts as back"
    )

    def cannot_fail(self, training: TrainingPart) -> str:
        if self.steps >= training.steps:
            return (
                f"it judges {self.steps} steps after a loss, but the training has "
                f"{training.steps} in all"
            )
        return super().cannot_fail(training)

    def check(self, run: RunEvents) -> Verdict:
        steps = run.of_world("trained")
        if not steps:
            return self.unknown("nothing")
        hit = [place for place, step in enumerate(steps) if step["lost"]]
        if not hit:
            return self.not_applicable("never")
        for after, step in enumerate(steps[hit[-1] :]):
            if step["tool"] >= step["twin"]["tool"] - self.within:
                return self.held(within=self.within, after=after)
            if after >= self.steps:
                return self.broken(
                    "not_back", [step], found=step["tool"], twin=step["twin"]["tool"], after=after
                )
        return self.unknown("too_short", after=len(steps) - 1 - hit[-1], steps=self.steps)


class PushHasTheTwinsSign(_OfToolUse, Promise):
    """Over the steps with lost samples, training does not push away from the tool unless its twin
    does, nor towards it where its twin pushes away."""

    sentences: ClassVar = {
        "turned": "the mean push on tool use is {found:+.3f} in {steps:step} with lost "
        "samples, the twin's is {twin:+.3f}",
        "nothing": "no step was trained",
        "held": (
            "the mean push on tool use is {found:+.3f} in {steps:step} with lost "
            "samples, the twin's {twin:+.3f}"
        ),
        "unclear": (
            "the mean push on tool use is {found:+.3f} in {steps:step} with lost samples, the "
            "twin's {twin:+.3f}; the steps differ so much that one of them may be chance"
        ),
        "silent": (
            "{steps:step} with lost samples pushed nowhere: nothing that tells users of the tool "
            "from the others was in the loss"
        ),
        "never": _NEVER,
    }

    def check(self, run: RunEvents) -> Verdict:
        steps = run.of_world("trained")
        if not steps:
            return self.unknown("nothing")
        hit = [step for step in steps if step["lost"]]
        if not hit:
            return self.not_applicable("never")
        pushes = [step["trained_push"] for step in hit]
        if all(abs(push) <= _SIGN for push in pushes):
            return self.not_applicable("silent", steps=len(hit))
        twins = [step["twin"]["trained_push"] for step in hit]
        facts = {"found": fmean(pushes), "twin": fmean(twins), "steps": len(hit)}
        found = _sign(pushes)
        twin = _sign(twins)
        if (found < 0 <= twin) or (found > 0 > twin):
            return self.broken("turned", hit, **facts)
        return self.held("held" if found == twin != 0 else "unclear", **facts)


def _sign(pushes: Sequence[float]) -> int:
    """Return the sign of the mean of some steps' pushes; 0 if that could be chance."""
    mean = fmean(pushes)
    noise = _LONE_STEP
    if len(pushes) > 1:
        noise = _ERRORS * stdev(pushes) / math.sqrt(len(pushes))
    if abs(mean) <= max(noise, _SIGN):
        return 0
    return 1 if mean > 0 else -1


class _OfLosses(_OfTraining):
    """Looks at the steps in which a sample lost its last call."""

    def check(self, run: RunEvents) -> Verdict:
        assert isinstance(self, Promise)
        steps = run.of_world("trained")
        if steps and not any(step["lost"] for step in steps):
            return self.not_applicable("never")
        return Promise.check(self, run)


class NoGradientFromLostSamples(_OfLosses, Promise):
    """No sample whose last call was really lost carries weight in the loss, whether or not the
    trainer knows."""

    sentences: ClassVar = {
        "trained": "in step {step} {share:.0%} of the weight in the loss comes from "
        "{lost:lost sample}, of which the trainer knows {known}",
        "nothing": "no step was trained",
        "never": _NEVER,
        "held": "{judged:step} with lost samples, none with a gradient from one",
    }

    def findings(self, run: RunEvents) -> Iterator[Verdict | None]:
        for step in run.of_world("trained"):
            if not step["lost"]:
                continue
            if step["lost_weight"] <= 0:
                yield None
                continue
            yield self.broken(
                "trained",
                [step],
                step=step["step"],
                share=step["lost_weight"],
                lost=step["lost"],
                known=step["lost"] - step["unseen"],
            )


class NoSignalOnlyThroughLosses(_OfLosses, Promise):
    """No group trains only because some of its samples were lost: where the healthy ones agree,
    there is no signal."""

    sentences: ClassVar = {
        "signal": "in step {step} {groups:group} had a signal only through lost samples",
        "nothing": "no step was trained",
        "never": _NEVER,
        "held": "{judged:step} with lost samples, none with a signal only through them",
    }

    def findings(self, run: RunEvents) -> Iterator[Verdict | None]:
        for step in run.of_world("trained"):
            if not step["lost"]:
                continue
            if not step["only_lost"]:
                yield None
                continue
            yield self.broken("signal", [step], step=step["step"], groups=step["only_lost"])
