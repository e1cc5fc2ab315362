"""Promises about retries, each broken."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sfusion.harness.lab.worlds import sim
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox import client as client_module
from sfusion_tools.sandbox.retry import RetryPolicy
from tests.harness.lab.promises.scenes import BUSY, broken_in, scene, verdicts


def test_only_transient_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = scene(
        sandbox={"faults": [{"call": "c0003", "first_attempts": 1, "what": {"status": 404}}]},
        load={
            "calls": 24,
            "concurrency": 12,
            "program": [{"seconds": "100ms", "prints": "{call}\n"}, {"exit": 1}],
        },
    )
    assert verdicts(sim.run(refusing))["only_transient_retried"].held
    monkeypatch.setattr(client_module, "RETRIED_STATUSES", frozenset({404, 429, 502, 503, 504}))
    broken = broken_in(refusing)
    assert set(broken) - {"outcomes"} == {"only_transient_retried"}
    assert broken["only_transient_retried"].sentence == "call c0003 was sent again after status 404"


def test_only_transient_retried_also_forbids_to_retry_a_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = client_module.SandboxClient._send

    async def hopeful(self: Any, *args: Any) -> Any:
        sent = await real(self, *args)
        sent.transient = sent.transient or sent.reading.outcome is Outcome.PROGRAM_ERROR
        return sent

    monkeypatch.setattr(client_module.SandboxClient, "_send", hopeful)
    failing = scene(load={"calls": 3, "program": {"exit": 1}}, tools={"max_attempts": 2})
    broken = broken_in(failing)
    assert set(broken) - {"outcomes", "throughput_at_least"} == {
        "only_transient_retried",
        "no_duplicate_execution",
    }
    assert "after the result of its program" in broken["only_transient_retried"].sentence


def test_retries_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = scene(sandbox=BUSY, tools={"rate_limit": 12})
    assert verdicts(sim.run(busy))["retries_spread"].held
    monkeypatch.setattr(RetryPolicy, "pause", lambda self, call_id, attempt, retry_after: 1.0)
    broken = broken_in(busy)
    assert set(broken) == {"retries_spread"}
    assert "12 of 12 calls that were refused at" in broken["retries_spread"].sentence


def test_no_permit_while_backing_off(monkeypatch: pytest.MonkeyPatch) -> None:
    real = client_module.SandboxClient._send

    async def greedy(self: Any, *args: Any) -> Any:
        sent = await real(self, *args)
        if sent.transient:
            await asyncio.sleep(2.0)
        return sent

    busy = scene(sandbox=BUSY)
    assert verdicts(sim.run(busy))["no_permit_while_backing_off"].held
    monkeypatch.setattr(client_module.SandboxClient, "_send", greedy)
    broken = broken_in(busy)
    assert set(broken) == {"no_permit_while_backing_off"}
    assert "for 2 s after status 503" in broken["no_permit_while_backing_off"].sentence
