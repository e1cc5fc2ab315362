"""Mistakes in what a call is worth, and in what the tool states about it."""

from __future__ import annotations

from typing import Any

from tests.proof.mistake import mistake
from tests.reference_tool import PROGRAMS, GoodTool, PeerResult


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


@mistake("outcome_in_extras", "single-node")
class OutcomeOnlyInMetrics(GoodTool):
    """The outcome is only in the metrics, which verl drops."""

    def state_for_the_trainer(self, result: PeerResult, agent_data: Any) -> None:
        return


@mistake("outcome_in_extras", "swallowed-failures")
class ExtrasSaySuccess(GoodTool):
    """The trainer is told ok, whatever happened."""

    def state_for_the_trainer(self, result: PeerResult, agent_data: Any) -> None:
        super().state_for_the_trainer(PeerResult("ok"), agent_data)


@mistake("outcomes", "swallowed-failures", also=("outcome_in_extras", "text_is_truthful"))
class StatesSuccess(GoodTool):
    """The metrics say ok, whatever happened."""

    def metrics(self, result: PeerResult) -> dict[str, Any] | None:
        return {**(super().metrics(result) or {}), "outcome": "ok", "infrastructure": False}


@mistake("outcomes", "swallowed-failures", also=("outcome_in_extras",))
class StatesAnotherFailure(GoodTool):
    """The metrics name one failure for all of them."""

    def metrics(self, result: PeerResult) -> dict[str, Any] | None:
        stated = super().metrics(result) or {}
        return stated if result.outcome in PROGRAMS else {**stated, "outcome": "sandbox_error"}


@mistake("outcome_in_extras", "single-node")
class WipesTheExtras(GoodTool):
    """What others have left for the trainer is overwritten."""

    def state_for_the_trainer(self, result: PeerResult, agent_data: Any) -> None:
        agent_data.extra_fields.clear()
        super().state_for_the_trainer(result, agent_data)


@mistake("infra_never_scored", "swallowed-failures")
class OutageIsNotMasked(GoodTool):
    """The outcome names an outage, but `infrastructure` beside it says that there was none."""

    def metrics(self, result: PeerResult) -> dict[str, Any] | None:
        return {**(super().metrics(result) or {}), "infrastructure": False}
