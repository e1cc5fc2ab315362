"""Promises about rollouts and what they record, each broken."""

from __future__ import annotations

from typing import Any

import pytest

from sfusion.harness.lab.worlds import sim
from sfusion_tools.rollout import AsyncRolloutRequest
from sfusion_tools.sandbox import tool as tool_module
from tests.harness.lab.promises.scenes import broken_in, rollout_scene, scene, verdicts


def test_rollout_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    real = AsyncRolloutRequest.add_tool_results

    def forgetful(self: Any, results: Any) -> None:
        if self.request_id != "r002":
            real(self, results)

    monkeypatch.setattr(AsyncRolloutRequest, "add_tool_results", forgetful)
    broken = broken_in(rollout_scene(horizon="2s"))
    assert "rollout_ends" in broken
    assert "rollout r002" in broken["rollout_ends"].sentence


def test_lengths_consistent(monkeypatch: pytest.MonkeyPatch) -> None:
    real = AsyncRolloutRequest.loss_mask
    monkeypatch.setattr(
        AsyncRolloutRequest, "loss_mask", property(lambda self: real.fget(self)[:-1])
    )  # type: ignore[attr-defined]
    broken = broken_in(rollout_scene())
    assert set(broken) == {"lengths_consistent"}
    assert "of loss_mask" in broken["lengths_consistent"].sentence


def test_outcome_in_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_module, "count_call", lambda agent_data, metrics: None)
    broken = broken_in(scene())
    assert set(broken) == {"outcome_in_extras"}
    assert (
        "call c0001 ended ok, but the extras do not say so" in broken["outcome_in_extras"].sentence
    )


def test_outcome_in_extras_counts_in_rollouts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdicts(sim.run(rollout_scene()), rollouts=True)["outcome_in_extras"].held
    monkeypatch.setattr("sfusion_tools.rollout.request.RolloutMetrics.add_call", lambda *args: None)
    assert set(broken_in(rollout_scene())) == {"outcome_in_extras"}
