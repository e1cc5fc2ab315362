"""Promises about what a toy training learned, judged against its twin without faults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from ...core.run_events import RunEvents
from ...core.verdict import Verdict
from .base import Need, Promise

if TYPE_CHECKING:
    from ..scenarios.training import TrainingPart

_SIGN = 1e-3
"""A mean push of less than this has no sign."""


class _OfTraining:
    of_rollouts: ClassVar[bool] = True
    of_training: ClassVar[bool] = True
    implied: ClassVar[bool] = False
    needs: ClassVar[Need] = "ending"


class _OfToolUse(_OfTraining):
    least_calls: ClassVar[int] = 1
    """Behaviours with this many calls are what is kept or unlearned."""

    def cannot_fail(self, training: TrainingPart) -> str:
        doing = [one.calls >= self.least_calls for one in training.behaviours]
        what = (
            "call the tool" if self.least_calls == 1 else f"make {self.least_calls} calls or more"
        )
        return (
            ""
            if any(doing) and not all(doing)
            else f"{'all' if all(doing) else 'none'} of the behaviours {what}"
        )


class ToolUseKept(_OfToolUse, Promise):
    """At the end of a training, the toy uses the tool nearly as often as its twin without
    faults."""

    sentences: ClassVar = {
        "unlearned": (
            "P({what}) is {found:.2f} at the end, the twin's is {twin:.2f}; "
            "promised at most {within:g} less"
        ),
        "nothing": "no step was trained",
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
        key = self.what.partition(" ")[0]
        found, twin = steps[-1][key], steps[-1]["twin"][key]
        facts = {"what": self.what, "found": found, "twin": twin, "within": self.within}
        return (
            self.broken("unlearned", steps[-1:], **facts)
            if found < twin - self.within
            else self.held(**facts)
        )


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
        "never": "no sample lost a call",
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
        hit = [place for place, one in enumerate(steps) if one["lost"]]
        if not hit:
            return self.held("never")
        for after, one in enumerate(steps[hit[-1] :]):
            if one["tool"] >= one["twin"]["tool"] - self.within:
                return self.held(within=self.within, after=after)
            if after >= self.steps:
                return self.broken(
                    "not_back", [one], found=one["tool"], twin=one["twin"]["tool"], after=after
                )
        return self.unknown("too_short", after=len(steps) - 1 - hit[-1], steps=self.steps)


class PushHasTheTwinsSign(_OfToolUse, Promise):
    """Over the steps with lost samples, training pushes tool use in the same direction as its
    twin does."""

    sentences: ClassVar = {
        "turned": "the mean push on tool use is {found:+.3f} in {steps:step} with lost "
        "samples, the twin's is "
        "{twin:+.3f}",
        "nothing": "no step was trained",
        "held": (
            "the mean push on tool use is {found:+.3f} in {steps:step} with lost "
            "samples, the twin's {twin:+.3f}"
        ),
        "never": "no sample lost a call",
    }

    def check(self, run: RunEvents) -> Verdict:
        steps = run.of_world("trained")
        if not steps:
            return self.unknown("nothing")
        hit = [one for one in steps if one["lost"]]
        if not hit:
            return self.held("never")
        found = sum(one["trained_push"] for one in hit) / len(hit)
        twin = sum(one["twin"]["trained_push"] for one in hit) / len(hit)
        facts = {"found": found, "twin": twin, "steps": len(hit)}
        turned = abs(found) > _SIGN and abs(twin) > _SIGN and (found > 0) != (twin > 0)
        return self.broken("turned", hit, **facts) if turned else self.held(**facts)


class NoGradientFromLostSamples(_OfTraining, Promise):
    """No sample whose last call was really lost carries weight in the loss, whether or not the
    trainer knows."""

    sentences: ClassVar = {
        "trained": "in step {step} {share:.0%} of the weight in the loss comes from "
        "{lost:lost sample}, of which the "
        "trainer knows {known}",
        "nothing": "no step was trained",
        "held": "{judged:step}, none with a gradient from a lost sample",
    }

    def findings(self, run: RunEvents) -> Iterator[Verdict | None]:
        for one in run.of_world("trained"):
            facts = {"step": one["step"], "share": one["lost_weight"], "lost": one["lost"]}
            known = one["lost"] - one["unseen"]
            yield (
                self.broken("trained", [one], known=known, **facts)
                if one["lost_weight"] > 0
                else None
            )


class NoSignalOnlyThroughLosses(_OfTraining, Promise):
    """No group trains only because some of its samples were lost: where the healthy ones agree,
    there is no signal."""

    sentences: ClassVar = {
        "signal": "in step {step} {groups:group} had a signal only through lost samples",
        "nothing": "no step was trained",
        "held": "{judged:step}, none with a signal only through lost samples",
    }

    def findings(self, run: RunEvents) -> Iterator[Verdict | None]:
        for one in run.of_world("trained"):
            facts = {"step": one["step"], "groups": one["only_lost"]}
            yield self.broken("signal", [one], **facts) if one["only_lost"] else None
