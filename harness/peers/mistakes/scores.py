"""Mistakes in what a call is worth, and in what the tool states about it."""

from __future__ import annotations

from typing import Any

from sfusion.harness.peers.good import PROGRAMS, GoodTool, PeerResult
from sfusion.harness.peers.mistake import mistake


@mistake("infra_never_scored", "swallowed-failures")
class OutageScoredZero(GoodTool):
    """A failure of the infrastructure gets the reward of a wrong answer."""

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float | None:
        return await super().calc_reward(instance_id) or 0.0


@mistake("infra_never_scored", "swallowed-failures")
class StepRewardZero(GoodTool):
    """Every call gets a step reward of 0.0, an outage too."""

    def step_reward(self, result: PeerResult) -> float | None:
        return 0.0


@mistake("infra_never_scored", "masked-rollouts")
class OutageOfARolloutScored(GoodTool):
    """A trajectory that met an outage is scored like any other."""

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float | None:
        return 0.0

    def metrics(self, result: PeerResult) -> dict[str, Any] | None:
        stated = super().metrics(result)
        return stated and {**stated, "infrastructure": False}


@mistake("outcomes", "swallowed-failures", also=("text_is_truthful",), unstated=None)
class StatesSuccess(GoodTool):
    """The metrics say ok, whatever happened."""

    def metrics(self, result: PeerResult) -> dict[str, Any] | None:
        return {**(super().metrics(result) or {}), "outcome": "ok", "infrastructure": False}


@mistake("outcomes", "swallowed-failures", unstated=None)
class StatesAnotherFailure(GoodTool):
    """The metrics name one failure for all of them."""

    def metrics(self, result: PeerResult) -> dict[str, Any] | None:
        stated = super().metrics(result) or {}
        return stated if result.outcome in PROGRAMS else {**stated, "outcome": "sandbox_error"}
