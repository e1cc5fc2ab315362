"""A limit is named only where it explains who was refused."""

from __future__ import annotations

import heapq
import random
from dataclasses import replace

import pytest

from sfusion.harness.studies.learn.attempts import timed_requests
from sfusion.harness.studies.learn.learned import learn
from sfusion.harness.studies.learn.quota_fit import QuotaFit, find_quota
from sfusion_tools.record import Call
from tests.harness.studies.learn.records import call


def quota_of(calls: list[Call]) -> QuotaFit | None:
    calls = sorted(calls, key=lambda one: one.began)
    return find_quota(timed_requests(calls, 0.0, calls[-1].began + 1), "durations")


def gateway(limit: int, *, status: int = 429, retry_after: float | None = 0.5) -> list[Call]:
    """Requests at random times at a gateway that admits so many at once, a second each."""
    draw = random.Random(1)
    ends: list[float] = []
    calls = []
    for number, began in enumerate(sorted(draw.uniform(0, 60) for _ in range(400))):
        ends = [end for end in ends if end > began]
        if len(ends) >= limit:
            refused = call(
                number, began, 0.001, outcome="throttled", status=status, retry_after=retry_after
            )
            calls.append(refused)
        else:
            ends.append(began + 1.0)
            calls.append(call(number, began, 1.0))
    return calls


def test_a_limit_of_requests_in_flight_is_found_with_its_retry_after() -> None:
    found = quota_of(gateway(5))
    assert found is not None
    assert found.model == {"kind": "quota", "in_flight": 5, "retry_after": 0.5}
    assert "5 or more in flight" in found.evidence


def test_requests_that_come_at_the_same_moment_are_counted_too() -> None:
    calls = []
    for second in range(20):
        calls += [call(16 * second + n, float(second), 0.5) for n in range(8)]
        refused = {"outcome": "throttled", "status": 429, "retry_after": 0.5}
        calls += [call(16 * second + 8 + n, float(second), 0.0, **refused) for n in range(8)]  # type: ignore[arg-type]
    found = quota_of(calls)
    assert found is not None
    assert found.model["in_flight"] == 8


@pytest.mark.parametrize("status", [429, 503])
def test_a_limit_without_retry_after_is_a_quota_too(status: int) -> None:
    """A quota of the fake always sends Retry-After, so the model is a queue that nobody waits
    in."""
    found = quota_of(gateway(5, status=status, retry_after=None))
    assert found is not None
    assert found.kind == "quota"
    assert found.model == {"kind": "queue", "workers": 5, "waiting": 0, "status": status}
    assert found.says == f"5 in flight, the rest get {status} without Retry-After"


def test_refusals_at_any_load_are_not_a_limit() -> None:
    draw = random.Random(2)
    calls = []
    for number in range(400):
        began = draw.uniform(0, 60)
        refused = draw.random() < 0.2
        calls.append(call(number, began, 0.001 if refused else 1.0, status=429 if refused else 200))
    for place, found in enumerate(calls):
        if found.attempts[0].status != 200:
            calls[place] = call(0, found.began, 0.001, outcome="throttled", status=429)
    assert quota_of(calls) is None
    learned = learn(sorted(calls, key=lambda one: one.began))
    assert learned.headline == "unknown_limit"
    assert "neither requests in flight nor their rate tell which" in learned.causes[0].evidence


@pytest.mark.parametrize("status", [429, 503])
def test_a_limit_per_second_is_found(status: int) -> None:
    tokens, at, calls = 10.0, 0.0, []
    for number in range(600):
        began = number * 0.05
        tokens, at = min(10.0, tokens + (began - at) * 10), began
        if tokens >= 1:
            tokens -= 1
            calls.append(call(number, began, 0.01))
        else:
            calls.append(
                call(number, began, 0.001, outcome="throttled", status=status, retry_after=0.1)
            )
    found = quota_of(calls)
    assert found is not None
    assert found.model["per_second"] == 10 or abs(found.model["per_second"] - 10) < 0.3
    assert found.model["retry_after"] == 0.1
    assert found.model.get("status", 429) == status


def test_requests_that_wait_in_the_server_are_told_from_those_that_run() -> None:
    draw = random.Random(3)
    ends: list[float] = []
    calls = []
    for number, began in enumerate(sorted(draw.uniform(0, 60) for _ in range(800))):
        ends = [end for end in ends if end > began]
        if len(ends) >= 8:
            calls.append(call(number, began, 0.001, outcome="throttled", status=503))
            continue
        start = sorted([began] * 4 + ends)[-4]
        ends.append(start + 1.0)
        answered = call(number, began, start + 1.0 - began)
        (attempt,) = answered.attempts
        calls.append(replace(answered, attempts=[replace(attempt, execution_time=1.0)]))
    found = quota_of(calls)
    assert found is not None
    assert found.model == {"kind": "queue", "workers": 4, "waiting": 4, "status": 503}


def front_server(limit: int, *, pause: float, seed: int = 1) -> list[Call]:
    """Callers that try again before a front server with ``--limit-concurrency``: it counts
    connections, so those that it is about to refuse count too."""
    draw = random.Random(seed)
    connections: list[float] = []
    ready = [(0.01 * draw.random(), 0) for _ in range(12)]
    calls: list[Call] = []
    while ready and len(calls) < 600:
        at, tries = heapq.heappop(ready)
        connections = [end for end in connections if end > at]
        number = len(calls)
        if len(connections) >= limit:
            took = 0.004 * draw.lognormvariate(0.0, 0.7)
            wait = pause * 2 ** min(tries, 5) * draw.uniform(0.5, 1.0)
            heapq.heappush(ready, (at + took + wait, tries + 1))
            calls.append(call(number, at, took, outcome="sandbox_error", status=503))
        else:
            took = 0.3 * draw.lognormvariate(0.0, 0.05)
            heapq.heappush(ready, (at + took, 0))
            calls.append(call(number, at, took))
        connections.append(at + took)
    return calls


@pytest.mark.parametrize("pause", [0.05, 0.3])
@pytest.mark.parametrize("limit", [3, 7])
def test_a_limit_of_connections_is_no_rate(limit: int, pause: float) -> None:
    found = quota_of(front_server(limit, pause=pause))
    assert found is not None
    assert found.model == {"kind": "queue", "workers": limit, "waiting": 0, "status": 503}


@pytest.mark.parametrize("seed", range(3))
def test_a_rate_is_no_limit_of_requests_in_flight(seed: int) -> None:
    """Sixteen callers before a bucket of eight requests per second."""
    draw = random.Random(seed)
    tokens, filled = 4.0, 0.0
    ready = [0.01 * draw.random() for _ in range(16)]
    calls: list[Call] = []
    heapq.heapify(ready)
    while len(calls) < 500:
        at = heapq.heappop(ready)
        tokens, filled = min(4.0, tokens + 8 * (at - filled)), at
        if tokens >= 1:
            tokens -= 1
            took = 0.3 * draw.lognormvariate(0.0, 0.3)
            calls.append(call(len(calls), at, took))
            heapq.heappush(ready, at + took)
        else:
            calls.append(call(len(calls), at, 0.002, outcome="throttled", status=429))
            heapq.heappush(ready, at + 0.2 * draw.uniform(0.5, 1.0))
    found = quota_of(calls)
    assert found is not None
    assert found.model["per_second"] == pytest.approx(8, rel=0.1)
