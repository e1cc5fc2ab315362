"""Calls are spread over the sandboxes by load and speed, and failing ones are set aside, for the
whole process."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from sfusion_tools.sandbox.fleet import (
    FIRST_PAUSE,
    LONGEST_ASKED,
    LONGEST_PAUSE,
    Fleet,
    Health,
    LoopSlots,
    Slot,
)

A, B, C = "http://a:1", "http://b:2", "http://c:3"


class Calls:
    """Attempts on a fleet, one moment after the other."""

    def __init__(self, *urls: str) -> None:
        self.urls = urls
        self.fleet = Fleet()
        self._slots = LoopSlots(self.fleet)

    def begin(self, now: float) -> Slot:
        return Slot(self._slots, self.urls, now).__enter__()

    def end(
        self,
        slot: Slot,
        now: float,
        *,
        health: Health | None = Health.ANSWERED,
        asked: float | None = None,
    ) -> None:
        if health is not None:
            slot.report(now, health, asked=asked)
        slot.__exit__()

    def one(
        self,
        now: float,
        *,
        health: Health | None = Health.ANSWERED,
        seconds: float = 0.0,
        asked: float | None = None,
    ) -> str:
        slot = self.begin(now)
        self.end(slot, now + seconds, health=health, asked=asked)
        return slot.endpoint.url


def spread(slots: list[Slot]) -> Counter[str]:
    return Counter(slot.endpoint.url for slot in slots)


def test_concurrent_calls_are_spread_evenly():
    calls = Calls(A, B, C)
    busy = [calls.begin(0.0) for _ in range(30)]
    assert spread(busy) == {A: 10, B: 10, C: 10}
    for slot in busy[:12]:
        calls.end(slot, 0.0)
    assert spread([calls.begin(1.0) for _ in range(12)]) == {A: 4, B: 4, C: 4}


def test_sequential_calls_go_round_robin():
    calls = Calls(A, B)
    assert [calls.one(float(now)) for now in range(4)] == [A, B, A, B]


def test_a_slow_endpoint_gets_fewer_calls_but_some():
    """With only the number in flight counted, an endpoint that takes four times as long gets a
    fifth of the calls."""
    served = _shares({A: 1.0, B: 4.0})
    assert 1 / 20 < served[B] / served.total() < 1 / 6


def test_different_programs_on_equal_endpoints_do_not_look_like_different_endpoints():
    served = _shares({A: 1.0, B: 1.0, C: 1.0})
    assert max(served.values()) < 1.4 * min(served.values())


def _shares(slowness: dict[str, float], count: int = 3000, concurrency: int = 24) -> Counter[str]:
    """Run programs, a tenth of which take thirty times as long as the others, and count them by
    endpoint."""
    calls, draw, served = Calls(*slowness), random.Random(7), Counter[str]()
    now, running = 0.0, list[tuple[float, int, Slot]]()
    for number in range(count):
        if len(running) == concurrency:
            running.sort()
            now, _, done = running.pop(0)
            calls.end(done, now)
        slot = calls.begin(now)
        served[slot.endpoint.url] += 1
        seconds = draw.expovariate(1.0) * (30.0 if draw.random() < 0.1 else 1.0)
        running.append((now + seconds * slowness[slot.endpoint.url], number, slot))
    return served


def test_a_slow_endpoint_is_tried_again_after_a_while():
    calls = Calls(A, B)
    for step in range(40):
        slot = calls.begin(float(step))
        calls.end(slot, step + (0.5 if slot.endpoint.url == A else 4.0))
    assert {calls.one(50.0 + step, seconds=0.5) for step in range(5)} == {A}
    assert B in {calls.one(300.0 + step, seconds=0.5) for step in range(5)}


def test_failing_quickly_does_not_look_like_speed():
    calls = Calls(A, B)
    now = 0.0
    for _ in range(50):
        slot = calls.begin(now)
        if slot.endpoint.url == A:
            calls.end(slot, now + 0.001, health=Health.FAILED)
        else:
            calls.end(slot, now + 1.0)
        now += 1.0
    assert calls.fleet.endpoint(A).speed is None
    assert spread([calls.begin(now) for _ in range(10)])[B] >= 9


def _refused_shares(
    refuses: Callable[[str, int], bool], count: int = 600, concurrency: int = 16
) -> tuple[Counter[str], int]:
    """Run programs of 0.1 s on endpoints that refuse some of them within a millisecond.

    Return the number of programs by endpoint, and how many of them began while an endpoint was set
    aside.
    """
    calls, served, unequal = Calls(A, B), Counter[str](), 0
    now, running = 0.0, list[tuple[float, int, Slot, Health]]()
    for number in range(count):
        if len(running) == concurrency:
            running.sort(key=lambda run: run[:2])
            now, _, done, health = running.pop(0)
            calls.end(done, now, health=health)
        slot = calls.begin(now)
        served[slot.endpoint.url] += 1
        unequal += any(calls.fleet.endpoint(url).failures for url in (A, B))
        refused = refuses(slot.endpoint.url, number)
        end = now + (0.001 if refused else 0.1)
        running.append((end, number, slot, Health.REFUSED if refused else Health.ANSWERED))
    return served, unequal


def test_an_endpoint_that_refuses_what_another_one_answers_is_set_aside():
    assert _refused_shares(lambda url, _: url == A)[0][A] < 600 * 0.1


def test_an_endpoint_that_refuses_some_of_what_another_one_answers_gets_at_most_its_fair_share():
    assert _refused_shares(lambda url, number: url == A and number % 2 == 0)[0][A] < 600 * 0.5


@pytest.mark.parametrize("share", [1.0, 0.2, 0.05])
def test_requests_that_every_endpoint_refuses_set_none_aside(share):
    draw = random.Random(7)
    served, unequal = _refused_shares(lambda *_: draw.random() < share)
    assert (250 < served[A] < 350, unequal) == (True, 0)


def test_the_only_endpoint_is_never_set_aside_for_refusing():
    calls = Calls(A)
    for step in range(50):
        calls.one(float(step), health=Health.REFUSED)
    assert calls.fleet.endpoint(A).failures == 0


def test_an_endpoint_that_refused_everything_gets_its_full_share_once_it_answers():
    calls = Calls(A, B)
    for step in range(30):
        slot = calls.begin(step * 0.01)
        calls.end(
            slot, step * 0.01, health=Health.REFUSED if slot.endpoint.url == A else Health.ANSWERED
        )
    assert {calls.one(0.4) for _ in range(5)} == {B}
    assert A in {calls.one(2.0) for _ in range(2)}
    assert spread([calls.begin(3.0) for _ in range(10)]) == {A: 5, B: 5}


def test_an_endpoint_without_an_answer_yet_does_not_get_every_call():
    calls = Calls(A, B)
    assert calls.one(0.0, seconds=0.2) == A
    assert spread([calls.begin(1.0) for _ in range(10)]) == {A: 5, B: 5}


def test_a_failing_endpoint_is_set_aside_and_tried_again_later():
    calls = Calls(A, B)
    assert calls.one(0.0, health=Health.FAILED) == A
    assert {calls.one(FIRST_PAUSE * 0.9) for _ in range(5)} == {B}
    assert A in {calls.one(FIRST_PAUSE * 1.1) for _ in range(2)}


def test_an_endpoint_is_set_aside_for_as_long_as_it_asks():
    calls = Calls(A, B)
    assert calls.one(0.0, health=Health.FAILED, asked=20.0) == A
    assert {calls.one(19.0) for _ in range(5)} == {B}
    assert A in {calls.one(20.5) for _ in range(2)}
    calls = Calls(A, B)
    calls.one(0.0, health=Health.FAILED, asked=1e9)
    assert A in {calls.one(LONGEST_ASKED + 1) for _ in range(2)}


def test_only_one_attempt_probes_an_endpoint_that_failed():
    calls = Calls(A, B)
    calls.one(0.0, health=Health.FAILED)
    assert spread([calls.begin(FIRST_PAUSE * 2) for _ in range(8)]) == {A: 1, B: 7}


def test_an_endpoint_that_answers_again_gets_its_full_share():
    calls = Calls(A, B)
    calls.one(0.0, health=Health.FAILED)
    later = FIRST_PAUSE * 2
    probe = next(
        slot for slot in (calls.begin(later), calls.begin(later)) if slot.endpoint.url == A
    )
    calls.end(probe, later)
    assert spread([calls.begin(later) for _ in range(9)]) == {A: 5, B: 4}


def test_each_failure_in_a_row_doubles_the_pause_up_to_the_longest():
    calls = Calls(A)
    endpoint = calls.fleet.endpoint(A)
    now, rests = 0.0, []
    for _ in range(8):
        now = max(now, endpoint.set_aside_until) + 1.0
        calls.one(now, health=Health.FAILED)
        rests.append(calls.fleet.endpoint(A).set_aside_until - now)
    assert rests == [1.0, 2.0, 4.0, 8.0, 16.0, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]


def test_a_crash_with_many_attempts_in_flight_counts_as_one_failure():
    calls = Calls(A)
    for slot in [calls.begin(0.0) for _ in range(50)]:
        calls.end(slot, 5.0, health=Health.FAILED)
    endpoint = calls.fleet.endpoint(A)
    assert (endpoint.set_aside_until, endpoint.in_flight) == (5.0 + FIRST_PAUSE, 0)


def test_when_all_are_set_aside_the_one_that_returns_first_is_tried():
    calls = Calls(A, B)
    calls.one(0.0, health=Health.FAILED)
    calls.one(0.1, health=Health.FAILED)
    assert calls.one(0.2, health=None) == A


def test_an_attempt_of_unknown_health_leaves_the_endpoint_unchanged():
    calls = Calls(A)
    calls.one(0.0, health=None)
    endpoint = calls.fleet.endpoint(A)
    assert (endpoint.failures, endpoint.in_flight, endpoint.speed) == (0, 0, None)


def test_a_sandbox_on_the_port_of_an_earlier_one_does_not_inherit_its_failures():
    calls = Calls(A, B)
    calls.one(0.0, health=Health.FAILED)
    busy = calls.begin(0.0)
    calls.fleet.forget()
    assert calls.fleet.endpoint(A).failures == 0
    assert calls.fleet.endpoint(B) is busy.endpoint
