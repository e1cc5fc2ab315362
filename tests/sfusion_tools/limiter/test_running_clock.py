"""The limiter's clock stands still while its process does not run."""

from __future__ import annotations

from sfusion_tools.limiter.host import RunningClock


def test_time_counts_while_the_clock_is_read_and_hardly_counts_otherwise() -> None:
    now = 100.0
    clock = RunningClock(lambda: now)
    for _ in range(50):
        now += 0.1
        clock()
    ran = clock()
    assert round(ran, 6) == 5.0
    now += 3600.0  # stopped, or the machine was suspended
    assert clock() - ran < 0.5
    now += 0.1
    assert clock() > ran
