"""How calls arrived: by callers that wait for each, evenly whatever happens, or in steps."""

from __future__ import annotations

import heapq
import random

import pytest

from sfusion.harness.studies.learn.load import LoadFit, find_load
from sfusion_tools.record import Call
from tests.harness.studies.learn.records import call


def load_of(calls: list[Call]) -> LoadFit:
    calls = sorted(calls, key=lambda one: one.began)
    return find_load(calls, calls[0].began, max(one.began + (one.seconds or 0) for one in calls))


def closed_loop(callers: int, count: int, think: float) -> list[Call]:
    """Callers that pause before each call; calls take ten times as long in the middle of the
    log."""
    draw = random.Random(1)
    ready = [draw.expovariate(1 / think) if think else 0.0 for _ in range(callers)]
    heapq.heapify(ready)
    calls = []
    for number in range(count):
        began = heapq.heappop(ready)
        seconds = draw.uniform(0.5, 1.5) * (2.0 if count / 3 < number < 2 * count / 3 else 0.2)
        calls.append(call(number, began, seconds))
        heapq.heappush(ready, began + seconds + (draw.expovariate(1 / think) if think else 0.001))
    return calls


def test_callers_that_go_on_at_once_are_counted() -> None:
    found = load_of(closed_loop(12, 600, 0.0))
    assert (found.kind, found.concurrency) == ("closed", 12)
    assert found.think is None or found.think < 0.01


def test_callers_that_pause_are_found_with_their_pause() -> None:
    found = load_of(closed_loop(20, 1500, 2.0))
    assert found.kind == "closed"
    assert found.concurrency == pytest.approx(20, abs=3)
    assert found.think["exponential"] == pytest.approx(2.0, rel=0.2)


def test_calls_that_come_evenly_whatever_happens_are_told_from_callers_that_wait() -> None:
    draw = random.Random(2)
    calls = [
        call(number, at, draw.uniform(0.5, 1.5) * (3.0 if 33 < at < 66 else 0.2))
        for number, at in enumerate(draw.uniform(0, 100) for _ in range(1500))
    ]
    found = load_of(calls)
    assert found.kind == "open"
    assert found.concurrency == 1500
    assert found.think == {"uniform": [0, pytest.approx(100, rel=0.01)]}


def test_steps_of_a_training_are_found() -> None:
    calls = [
        call(40 * step + n, 60.0 * step + 0.5 * (n // 8), 0.45)
        for step in range(5)
        for n in range(40)
    ]
    found = load_of(calls)
    assert (found.kind, found.steps, found.concurrency) == ("steps", 5, 8)
    assert found.step_pause == pytest.approx(57.55, abs=0.1)
