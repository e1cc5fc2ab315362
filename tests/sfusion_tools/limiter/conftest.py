"""Fixtures of the limiter tests."""

from __future__ import annotations

import pytest

from tests.sfusion_tools.limiter.bench import Bench


@pytest.fixture
def bench() -> Bench:
    bench = Bench(rate_limit=2, lease=10)
    bench.attach("a")
    bench.attach("b")
    return bench
