"""Promises about recovery and speed, each broken."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sfusion_tools.limiter.client import LeasedPermit
from sfusion_tools.sandbox.retry import RetryPolicy
from tests.harness.lab.promises.scenes import BUSY, broken_in, scene


def test_recovers_within(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        RetryPolicy, "pause", lambda self, call_id, attempt, retry_after: 30.0 + int(call_id[1:])
    )
    falling = scene(
        events=[{"at": "150ms", "crash": "sandbox", "seconds": "2s"}], tools={"rate_limit": 12}
    )
    broken = broken_in(falling)
    assert set(broken) - {"no_duplicate_execution", "throughput_at_least"} == {"recovers_within"}
    assert "after restart" in broken["recovers_within"].sentence


def test_throughput_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    real = LeasedPermit.__aenter__

    async def sluggish(self: Any) -> Any:
        permit = await real(self)
        await asyncio.sleep(10.0)
        return permit

    monkeypatch.setattr(LeasedPermit, "__aenter__", sluggish)
    broken = broken_in(scene())
    assert set(broken) - {"no_starvation", "deadline_honoured", "metrics_are_true"} == {
        "throughput_at_least"
    }


def test_no_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        RetryPolicy,
        "pause",
        lambda self, call_id, attempt, retry_after: 70.0 + int(call_id[1:]) / 9,
    )
    broken = broken_in(scene(sandbox=BUSY, tools={"rate_limit": 12, "call_deadline": 1000}))
    assert set(broken) - {"recovers_within", "throughput_at_least"} == {"no_stall"}
    assert "nothing happened for 70" in broken["no_stall"].sentence
