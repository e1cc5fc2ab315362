"""Why answers are slow is found whatever the seed, and with the network's noise."""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import replace

import pytest

from sfusion.fakes.sandbox.models import SharedCores
from sfusion.harness.lab.scenarios import parse_scenarios
from sfusion.harness.studies.learn.distributions import added_delay
from sfusion.harness.studies.learn.draft import scenario_text
from sfusion.harness.studies.learn.learned import Learned, learn
from sfusion_tools.record import Call
from tests.harness.studies.learn.records import call
from tests.harness.studies.made_calls import attempt_at, call_at

NOISE = 0.015
SPAN = 16.0


def logged(number: int, began: float, took: float, ran: float | None) -> Call:
    attempt = attempt_at(1e9 + began, took, "http://sandbox", 200, "ok", execution_time=ran)
    return call_at(f"c{number}", 1e9 + began, took + 0.001, "client", "ok", "w", (attempt,))


def production(seed: int, *, workers: int | None = None, slower_since: float = math.inf) -> Learned:
    """Sixteen callers that pause; the network adds some milliseconds, exponentially distributed."""
    draw = random.Random(seed)
    ready = [draw.random() * 0.3 for _ in range(16)]
    free = [0.0] * (workers or 16)
    heapq.heapify(ready)
    calls = []
    while (at := heapq.heappop(ready)) < SPAN:
        ran = draw.lognormvariate(math.log(0.15), 0.4) * (2.2 if at > slower_since else 1.0)
        starts = max(at, heapq.heappop(free))
        heapq.heappush(free, starts + ran)
        took = starts + ran - at + draw.expovariate(1 / NOISE)
        calls.append(logged(len(calls), at, took, ran))
        heapq.heappush(ready, at + took + draw.expovariate(1 / 0.3))
    return learn(calls)


@pytest.mark.parametrize("seed", range(6))
def test_a_queue_before_the_workers_of_a_sandbox_is_not_contention(seed: int) -> None:
    learned = production(seed, workers=4)
    assert learned.headline == "queue"
    assert learned.sandboxes[0].slowness.model == {"kind": "queue", "workers": 4}
    assert (
        "a line before 4 workers predicts these waits with an error of"
        in learned.causes[0].evidence
    )


@pytest.mark.parametrize("seed", range(6))
def test_programs_that_take_longer_from_some_moment_on_are_a_slowdown(seed: int) -> None:
    learned = production(seed, slower_since=8.0)
    assert learned.headline == "slowdown"
    slowness = learned.sandboxes[0].slowness
    assert slowness.between == (pytest.approx(8.0, abs=0.3), math.inf)
    (scenario,) = parse_scenarios(scenario_text(learned, "slow", "a test"))
    (rule,) = (rule for rule in scenario.sandbox.faults if rule.name == "slowdown")
    assert rule.as_data()["between"][1] == 3600, "it does not end with the log"


def shared_cores(cores: float, seed: int) -> list[Call]:
    """Eight callers, and three times as many in the second half, whose programs share cores."""
    draw = random.Random(seed)
    server, begun, calls = SharedCores(cores), dict[int, float](), list[Call]()
    ready = [draw.random() for _ in range(8)] + [SPAN / 2 + draw.random() for _ in range(16)]
    heapq.heapify(ready)
    for number in range(10_000):
        following = server.next_end()
        while following is not None and following[0] <= ready[0]:
            now, ended = following
            server.end(ended, now)
            for one in ended:
                calls.append(logged(one, begun[one], now - begun[one], None))
                heapq.heappush(ready, now + draw.expovariate(1 / 0.3))
            following = server.next_end()
        if (at := heapq.heappop(ready)) > SPAN:
            break
        begun[number] = at
        server.add(number, draw.lognormvariate(math.log(0.15), 0.4), at)
    return sorted(calls, key=lambda one: one.began)


@pytest.mark.parametrize("seed", range(3))
def test_shared_cores_are_contention_although_answers_are_slow_since_the_load_rose(
    seed: int,
) -> None:
    learned = learn(shared_cores(4, seed))
    assert learned.headline == "contention"
    assert learned.sandboxes[0].slowness.model["cores"] == pytest.approx(4, rel=0.25)
    assert (
        "without reported execution times, a queue would look the same"
        in learned.causes[0].evidence
    )


def test_a_slow_spell_delays_by_a_distribution() -> None:
    draw = random.Random(3)
    calls = []
    for n in range(600):
        took = draw.uniform(0.1, 0.2) + (draw.expovariate(2.0) if 200 <= n < 350 else 0.0)
        calls.append(logged(n, 0.1 * n, took, None))
    learned = learn(calls)
    assert learned.headline == "slow_spell"
    slowness = learned.sandboxes[0].slowness
    assert slowness.between == (pytest.approx(20, abs=0.5), pytest.approx(35, abs=0.5))
    assert slowness.what["delay"] == {"exponential": pytest.approx(0.5, rel=0.25)}


def test_a_stall_that_all_callers_wait_for_does_not_slow_what_comes_after_it() -> None:
    draw = random.Random(6)
    calls = [
        logged(n, 0.05 * n + (2.0 if n >= 300 else 0.0), draw.uniform(0.1, 0.2), None)
        for n in range(600)
    ]
    calls[270:300] = [
        logged(n, 0.05 * n, 2.0 + draw.uniform(0.1, 0.2), None) for n in range(270, 300)
    ]
    slowness = learn(calls).sandboxes[0].slowness
    assert slowness.kind == "slow_spell"
    assert slowness.between == (pytest.approx(13.5), pytest.approx(15.975)), (
        "not until the next call, at 17 s"
    )


def test_a_delay_is_found_beside_what_it_delays() -> None:
    draw = random.Random(4)
    quick = [draw.lognormvariate(-2, 0.5) for _ in range(800)]
    for delay, shape in (
        (lambda: 0.5, "constant"),
        (lambda: draw.lognormvariate(-0.5, 0.6), "lognormal"),
    ):
        found = added_delay([draw.lognormvariate(-2, 0.5) + delay() for _ in range(800)], quick)
        assert (found.shape, found.numbers[0]) == (
            shape,
            pytest.approx(0.5 if shape == "constant" else 0.61, rel=0.15),
        )
        assert found.distance < 0.06


def test_without_execution_times_nothing_is_said_about_a_queue() -> None:
    draw = random.Random(5)
    calls = [logged(n, 0.1 * n, draw.uniform(0.1, 0.3), 0.02) for n in range(200)]
    (cause,) = learn(calls).causes
    assert cause.kind == "overhead", "a constant share beside the program is not a queue"
    unknown = [
        replace(one, attempts=[replace(one.attempts[0], execution_time=None)]) for one in calls
    ]
    assert learn(unknown).causes == ()


@pytest.mark.parametrize("times", [1.0, 3.0])
def test_a_sandbox_that_takes_longer_than_the_others_is_named(times: float) -> None:
    draw = random.Random(5)
    calls = []
    for number in range(120):
        name = f"http://s{number % 2}"
        took = 0.2 * draw.lognormvariate(0.0, 0.1) * (times if number % 2 else 1.0)
        calls.append(call(number, 1e9 + number, took, sandbox=name))
    learned = learn(calls)
    named = [one.says for one in learned.causes if one.kind == "slow_sandbox"]
    assert len(named) == (times > 1.0), learned.causes
    assert all(says.startswith("http://s1 takes 0.4") for says in named), named
