"""The rules of the guard: when it trips, which calls count, and how it recovers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox.guard import PROBES, GuardCore, GuardedCall, GuardSettings

OK, DOWN = Outcome.OK, Outcome.UNREACHABLE
QUIET = [Outcome.CANCELLED, Outcome.BAD_ARGUMENTS]
OF_PROGRAMS = [outcome for outcome in Outcome if outcome.is_from_program]
FAILURES = [outcome for outcome in Outcome if outcome.is_infrastructure and outcome not in QUIET]


def core(**settings: Any) -> GuardCore:
    return GuardCore(
        GuardSettings(**{"window": 10, "min_calls": 10, "probe_after": 30.0, **settings})
    )


def let_through(guard: GuardCore, now: float = 0.0) -> GuardedCall:
    call = guard.begin(now)
    assert call is not None
    return call


def play(guard: GuardCore, outcomes: Sequence[Outcome], now: float = 0.0) -> list[bool]:
    """Make calls one after the other; return which of them changed the guard."""
    return [guard.end(let_through(guard, now), now, outcome, "http://a") for outcome in outcomes]


def tripped(now: float = 0.0, **settings: Any) -> GuardCore:
    guard = core(**settings)
    assert play(guard, [DOWN] * 10, now)[-1]
    return guard


@pytest.mark.parametrize("failure", FAILURES)
def test_it_trips_above_the_share_and_not_at_it(failure: Outcome) -> None:
    at_the_share = core()
    assert not any(play(at_the_share, [failure] * 3 + [OK] * 7))
    assert at_the_share.trip is None
    above = core()
    assert play(above, [failure] * 4 + [OK] * 6) == [False] * 9 + [True]
    assert above.trip is not None
    assert above.trip.outcomes == {OK: 6, failure: 4}


def test_a_share_that_binary_fractions_cannot_hold_is_compared_exactly() -> None:
    guard = core(window=100, min_calls=100, infrastructure_at_most=0.29)
    assert not any(play(guard, [DOWN] * 29 + [OK] * 71))


@pytest.mark.parametrize("outcome", OF_PROGRAMS)
def test_what_programs_do_never_trips_it(outcome: Outcome) -> None:
    guard = core()
    assert not any(play(guard, [outcome] * 100))
    play(guard, [DOWN] * 3)
    assert guard.trip is None, "three of the last ten"


@pytest.mark.parametrize("outcome", QUIET)
def test_cancelled_calls_and_bad_arguments_count_neither_way(outcome: Outcome) -> None:
    guard = core()
    assert not any(play(guard, [outcome] * 100)), "they are not failures of the sandbox"
    assert play(guard, [DOWN, outcome, outcome] * 10)[27] is True, "nor do they dilute its failures"


def test_it_waits_for_enough_calls() -> None:
    assert play(core(window=200, min_calls=20), [DOWN] * 20) == [False] * 19 + [True]
    assert play(core(window=5, min_calls=20), [DOWN] * 5) == [False] * 4 + [True], (
        "a window cannot hold more"
    )


def test_only_the_latest_calls_count() -> None:
    guard = core()
    assert not any(play(guard, ([DOWN] * 3 + [OK] * 7) * 20)), "three of any ten in a row"
    assert any(play(guard, [DOWN] * 4))


def test_it_says_where_calls_failed_with_the_worst_sandbox_first() -> None:
    guard = core()
    for place in ["http://a", "http://b", "http://b", "http://a", "http://b"] * 2:
        guard.end(let_through(guard), 0.0, DOWN, place)
    assert guard.trip is not None
    assert list(guard.trip.failed_at.items()) == [("http://b", 6), ("http://a", 4)]
    assert str(guard.trip) == (
        "10 of the last 10 calls (100%, allowed 30%) failed for reasons that are not the "
        "program's: 10 unreachable"
    )


def test_while_open_it_refuses_calls_or_lets_them_through_uncounted() -> None:
    failing = tripped(then="fail")
    assert failing.begin(29.9) is None
    warning = tripped(then="warn")
    assert not any(play(warning, [DOWN] * 1000, now=29.9)), "it has been said"


@pytest.mark.parametrize("then", ["warn", "fail"])
def test_it_closes_after_probes_that_succeed(then: str) -> None:
    guard = tripped(then=then)
    assert play(guard, [OK] * PROBES, now=30.0) == [False] * (PROBES - 1) + [True]
    assert guard.trip is None


def test_only_a_few_probes_are_out_at_once() -> None:
    guard = tripped(then="fail")
    probes = [let_through(guard, 30.0) for _ in range(PROBES)]
    assert guard.begin(30.0) is None
    assert not guard.end(probes[0], 30.0, Outcome.CANCELLED, "")
    assert guard.begin(30.0) is not None, (
        "a cancelled probe says nothing, so another takes its place"
    )
    assert guard.begin(30.0) is None


def test_probes_that_fail_make_it_wait_again() -> None:
    guard = tripped(then="fail")
    late = [let_through(guard, 40.0) for _ in range(3)]
    assert not any(play(guard, [DOWN, DOWN], now=40.0)), "it stays open, which is no news"
    assert guard.begin(69.9) is None
    assert not any(guard.end(call, 70.0, DOWN, "") for call in late), (
        "these belong to the round that failed"
    )
    assert any(play(guard, [OK, DOWN, OK, OK, OK], now=70.0)), "one of five is within the share"


def test_probes_that_are_lost_do_not_keep_it_open_for_ever() -> None:
    guard = tripped(then="fail")
    lost = [let_through(guard, 30.0) for _ in range(PROBES)]
    assert guard.begin(59.9) is None
    assert any(play(guard, [OK] * PROBES, now=60.0))
    assert not any(guard.end(call, 61.0, DOWN, "") for call in lost)
    assert guard.trip is None


@pytest.mark.parametrize("then", ["warn", "fail"])
def test_calls_that_began_before_it_recovered_do_not_trip_it_again(then: str) -> None:
    guard = core(then=then)
    early = [let_through(guard) for _ in range(100)]
    assert any(guard.end(call, 0.0, DOWN, "") for call in early[:10])
    if then == "warn":
        early += [let_through(guard, 10.0) for _ in range(100)]
    assert any(play(guard, [OK] * PROBES, now=30.0))
    assert not any(guard.end(call, 30.0, DOWN, "") for call in early[10:])
    assert guard.trip is None
    assert play(guard, [DOWN] * 10, now=30.0)[-1], "calls that began after it do"


def test_calls_that_began_before_it_tripped_neither_close_it_nor_fail_its_probes() -> None:
    guard = core(then="fail")
    early = [let_through(guard) for _ in range(100)]
    play(guard, [DOWN] * 10)
    assert not any(guard.end(call, 30.0, OK, "") for call in early[:50])
    assert guard.trip is not None
    play(guard, [OK] * (PROBES - 1), now=30.0)
    assert not any(guard.end(call, 30.0, DOWN, "") for call in early[50:])
    assert any(play(guard, [OK], now=30.0))


@given(
    st.lists(
        st.tuples(st.sampled_from([OK, DOWN, Outcome.CANCELLED]), st.floats(0, 50)), max_size=80
    )
)
def test_the_first_trip_is_the_first_window_above_the_share(
    steps: list[tuple[Outcome, float]],
) -> None:
    """Compared with a count from scratch at every step."""
    guard, seen = core(window=8, min_calls=4, infrastructure_at_most=0.5), []
    for outcome, now in steps:
        changed = guard.end(let_through(guard, now), now, outcome, "")
        if outcome is Outcome.CANCELLED:
            assert not changed
            continue
        seen.append(outcome)
        last = seen[-8:]
        assert changed is (len(last) >= 4 and last.count(DOWN) > len(last) / 2)
        if changed:
            return
