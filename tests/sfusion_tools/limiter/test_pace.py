"""Requests per second, and an adaptive limit."""

from __future__ import annotations

import pytest

from tests.sfusion_tools.limiter.bench import Bench


def test_requests_per_second_are_limited_in_addition_to_those_in_flight() -> None:
    bench = Bench(rate_limit=100, per_second=2, burst=3)
    bench.attach("a")
    assert len(bench.send("a", acquire=tuple(range(10))).grants) == 3
    assert bench.core.next_deadline(bench.now) == pytest.approx(bench.now + 0.5)
    granted = []
    for _ in range(4):
        bench.now += 0.5
        granted.append(len(bench.poll("a").grants))
    assert granted == [1, 1, 1, 1]
    assert bench.poll("a").run == 0, "each attempt needs a token, so none may be handed on"


def test_an_adaptive_limiter_narrows_on_429_and_widens_again() -> None:
    bench = Bench(rate_limit=10, adaptive=True)
    bench.attach("a")
    bench.send("a", throttled=5)
    assert bench.core.width == 7
    bench.send("a", throttled=5)
    assert bench.core.width == 7, "a burst of 429s counts once"
    for _ in range(20):
        bench.now += 1
        bench.send("a", throttled=1)
    assert bench.core.width == 1
    for _ in range(100):
        bench.send("a", succeeded=1)
    assert bench.core.width == 10


def test_a_limiter_that_is_not_adaptive_ignores_429() -> None:
    bench = Bench(rate_limit=10)
    bench.attach("a")
    bench.send("a", throttled=5)
    assert bench.core.width == 10
