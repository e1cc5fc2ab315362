"""The knee, for every shape of the throughput curve."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfusion.harness.real.doctor.knee import Point, find_knee

LEVELS = (1, 2, 4, 8, 16, 32, 64)


def points(*throughputs: float, latency: float = 0.1) -> list[Point]:
    """Points at doubling levels."""
    return [
        Point(level, value, max(latency, level / value if value else 0.0), 2 * level)
        for level, value in zip(LEVELS, throughputs, strict=False)
    ]


def noise(*keys: object) -> float:
    """A reproducible number between -1 and 1."""
    digest = hashlib.blake2b(repr(keys).encode(), digest_size=4).digest()
    return int.from_bytes(digest) / 2**31 - 1


@pytest.mark.parametrize(
    ("throughputs", "rate_limit", "shape"),
    [
        ((10, 20, 40, 80, 160), 16, "rising"),
        ((10, 20, 40, 40, 40), 4, "plateau"),
        ((10, 20, 40, 41, 43), 4, "plateau"),
        ((10, 20, 40, 60, 60), 6, "plateau"),
        ((10, 20, 40, 44, 20), 4, "collapse"),
        ((10, 20, 40, 80, 100), 10, "plateau"),
        ((10, 5), 1, "collapse"),
        ((10, 10, 10), 1, "plateau"),
        ((10,), 1, "rising"),
    ],
)
def test_find_knee_handles_every_curve_shape(
    throughputs: tuple[float, ...], rate_limit: int, shape: str
) -> None:
    knee = find_knee(points(*throughputs))
    assert knee is not None
    assert (knee.rate_limit, knee.shape) == (rate_limit, shape)


def test_a_throttled_level_ends_the_search_whatever_its_throughput() -> None:
    measured = [*points(10, 20, 40, 80), Point(16, 200.0, 0.08, 32, throttled=10)]
    knee = find_knee(measured)
    assert knee is not None
    assert (knee.rate_limit, knee.throughput, knee.shape) == (8, 80, "throttled")


def test_a_failing_level_ends_the_search() -> None:
    knee = find_knee([*points(10, 20), Point(4, 15.0, 0.1, 8, failed=2), Point(8, 80.0, 0.1, 16)])
    assert knee is not None
    assert (knee.rate_limit, knee.shape) == (2, "failing")


def test_one_failure_in_a_hundred_is_tolerated() -> None:
    knee = find_knee([*points(10, 20, 40), Point(64, 640.0, 0.1, 128, failed=1)])
    assert knee is not None
    assert knee.shape == "rising"


def test_one_failure_in_twenty_is_not_tolerated() -> None:
    knee = find_knee([*points(10, 20, 40), Point(64, 640.0, 0.1, 120, failed=6)])
    assert knee is not None
    assert (knee.rate_limit, knee.shape) == (4, "failing")


@pytest.mark.parametrize(
    "measured", [[], [Point(1, 0.0, 0.0, 2, failed=2)], [Point(1, 0.0, 0.0, 2, throttled=2)]]
)
def test_no_knee_if_no_level_works(measured: list[Point]) -> None:
    assert find_knee(measured) is None


def test_the_order_of_the_points_does_not_matter() -> None:
    measured = points(10, 20, 40, 44, 44)
    assert find_knee(measured[::-1]) == find_knee(measured)


@settings(max_examples=80)
@given(
    capacity=st.integers(1, 40),
    seconds=st.floats(0.01, 5.0),
    swing=st.floats(0.0, 0.08),
    seed=st.integers(0, 99),
)
def test_a_known_capacity_is_found_despite_noise(
    capacity: int, seconds: float, swing: float, seed: int
) -> None:
    measured = []
    for level in LEVELS:
        factor = 1 + swing * noise(seed, capacity, level)
        throughput = min(level, capacity) / seconds * factor
        measured.append(Point(level, throughput, max(seconds, level / throughput), 2 * level))
    knee = find_knee(measured)
    assert knee is not None
    assert knee.shape == "plateau"
    assert 0.8 * capacity - 1 <= knee.rate_limit <= 1.25 * capacity + 1


def test_latency_that_grows_below_the_knee_does_not_lower_it() -> None:
    """Starting programs gets slower the more there are: 8 at a time reach about half the throughput
    of 16."""
    measured = {1: 5.0, 2: 10.0, 4: 19.0, 8: 35.0, 16: 60.0, 32: 66.0}
    knee = find_knee(
        [Point(level, rate, level / rate, requests=32) for level, rate in measured.items()]
    )
    assert knee is not None
    assert (knee.rate_limit, knee.throughput, knee.shape) == (16, 66.0, "plateau")
