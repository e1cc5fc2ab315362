"""Logs drawn at random, which no production would write, give valid scenarios too."""

from __future__ import annotations

import random

import pytest

from sfusion.harness.lab.scenarios import parse_scenarios
from sfusion.harness.studies.learn.draft import scenario_text
from sfusion.harness.studies.learn.learned import learn
from sfusion.harness.studies.learn.survey import sample
from sfusion_tools.outcome import Outcome
from sfusion_tools.record import Attempt, Call
from tests.harness.studies.learn.records import survey
from tests.harness.studies.made_calls import attempt_at, call_at

STATUSES = [200, 429, 503, 502, 500, 404, 302, 499, None, 0]


def random_log(seed: int) -> list[Call]:
    draw = random.Random(seed)
    outcomes: list[str | None] = [*(one.value for one in Outcome), None]
    outcomes = draw.sample(outcomes, draw.randint(1, len(outcomes)))
    statuses = draw.sample(STATUSES, draw.randint(1, len(STATUSES)))
    scale, span = 10 ** draw.uniform(-6, 4), draw.choice([0, 1e-6, 1, 60, 3600, 1e6])
    source, count = (
        draw.choice(["client", "server", "access", "dump"]),
        draw.choice([1, 2, 3, 5, 10, 50, 200, 600]),
    )

    def seconds() -> float | None:
        return draw.choice([None, 0.0, draw.uniform(0, scale), draw.lognormvariate(-1, 1) * scale])

    def attempt(began: float) -> Attempt:
        return attempt_at(
            began + draw.uniform(-0.1, 1) * scale,
            seconds(),
            draw.choice(["", "a", "b", "c"]),
            draw.choice(statuses),
            draw.choice(outcomes),
            draw.choice([0.0, draw.random() * scale]),
            retry_after=draw.choice([None, 0.0, 0.5, 1e6]),
            execution_time=seconds(),
        )

    calls = []
    for _ in range(count):
        began = draw.choice([0, 1.7e9]) + draw.uniform(0, span)
        attempts = tuple(attempt(began) for _ in range(draw.choice([0, 1, 1, 1, 2, 7])))
        name, worker, outcome = (
            f"c{draw.randint(0, count)}",
            draw.choice(["w1", "w2", ""]),
            draw.choice(outcomes),
        )
        calls.append(
            call_at(
                name,
                began,
                seconds(),
                source,
                outcome,
                worker,
                attempts,
                draw.choice([None, "x\ny"]),
            )
        )
    return calls


@pytest.mark.parametrize("seed", range(1000, 1040))
def test_a_random_log_gives_a_valid_scenario(seed: int) -> None:
    calls = random_log(seed)
    window = survey(calls).window(5000)
    assert window is not None
    parse_scenarios(scenario_text(learn(sample(calls, window, 5000)), "learned", "a random log"))
