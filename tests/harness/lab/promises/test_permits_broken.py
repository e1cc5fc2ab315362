"""Promises about permits, each broken by another limiter."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sfusion_tools.limiter import LimiterCore
from sfusion_tools.sandbox import client as client_module
from tests.harness.lab.promises.scenes import broken_in, scene


class OverAdmitting(LimiterCore):
    """Grants one permit more than it may."""

    def _free(self) -> int:
        return super()._free() + 1


def test_in_flight_within_limit() -> None:
    broken = broken_in(scene(), core=OverAdmitting)
    assert set(broken) == {"in_flight_within_limit"}
    assert "4 attempts were in flight; the limit is 3" in broken["in_flight_within_limit"].sentence
    assert broken["in_flight_within_limit"].evidence


def test_in_flight_within_limit_is_also_counted_at_the_sandbox(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = client_module.SandboxClient._send

    async def hedging(self: Any, *args: Any) -> Any:
        first, _ = await asyncio.gather(real(self, *args), real(self, *args))
        return first

    monkeypatch.setattr(client_module.SandboxClient, "_send", hedging)
    broken = broken_in(scene())
    assert set(broken) == {"in_flight_within_limit", "no_duplicate_execution"}
    assert "at the sandbox" in broken["in_flight_within_limit"].sentence


class Leaking(LimiterCore):
    """Ignores the release of one permit."""

    def _release(self, client: Any, permit: str, how: str = "released") -> bool:
        if how == "released" and permit == "p1-5":
            return True
        return super()._release(client, permit, how)


def test_no_permit_leaked() -> None:
    broken = broken_in(scene(tools={"rate_limit": 12}), core=Leaking)
    assert set(broken) == {"no_permit_leaked"}
    assert "was not released before its lease expired" in broken["no_permit_leaked"].sentence


class LastComeFirstServed(LimiterCore):
    """Serves the queue from its end."""

    def _next_in_line(self) -> Any:
        turn = super()._next_in_line()
        return turn and (turn[0], max(turn[0].waiters))


def test_grants_in_order() -> None:
    broken = broken_in(scene(), core=LastComeFirstServed)
    assert set(broken) == {"grants_in_order"}
    assert "was queued" in broken["grants_in_order"].sentence


class Starving(LimiterCore):
    """Grants nothing to the second node for a minute."""

    def _grant(self, now: float) -> None:
        self._now = now
        super()._grant(now)

    def _next_in_line(self) -> Any:
        turn = super()._next_in_line()
        if turn is None or self._now >= 70:
            return turn
        served = (
            ticket for ticket, (client, _) in turn[0].waiters.items() if client.name != "n2-w1"
        )
        ticket = next(served, None)
        return None if ticket is None else (turn[0], ticket)

    def _run(self, client: Any) -> int:
        return 0

    def next_deadline(self, now: float) -> float:
        return min(super().next_deadline(now), 70.0 if now < 70 else now + 1e9)


def test_no_starvation() -> None:
    broken = broken_in(scene(), core=Starving)
    assert "no_starvation" in broken
    assert set(broken) <= {"no_starvation", "grants_in_order", "no_stall", "throughput_at_least"}
