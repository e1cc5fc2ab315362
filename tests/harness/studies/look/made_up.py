"""Made-up logs."""

from __future__ import annotations

import random
from collections.abc import Iterator

from sfusion_tools.record import Call
from tests.harness.studies.made_calls import attempt_at, call_at

START = 1_763_200_000.0
OUTAGE = (1200.0, 2400.0)
"""Seconds after the start."""


def degrading(calls: int = 3000, seconds: float = 3600.0, seed: int = 1) -> Iterator[Call]:
    """An hour in which one of two sandboxes refuses for twenty minutes, and calls then take
    longer."""
    chance = random.Random(seed)
    for number in range(calls):
        after = seconds * number / calls
        bad = OUTAGE[0] <= after < OUTAGE[1]
        sandbox = f"http://10.0.0.{number % 2 + 1}:8080"
        took = chance.lognormvariate(-1, 0.4) * (3 if bad else 1)
        throttled = bad and number % 2 == 1 and chance.random() < 0.5
        outcome = "throttled" if throttled else chance.choices(("ok", "program_error"), (9, 1))[0]
        waited = 2.0 if bad else 0.0
        attempt = attempt_at(
            START + after + waited,
            took,
            sandbox,
            429 if throttled else 200,
            outcome,
            waited,
            "busy" if throttled else None,
        )
        worker = f"node{number % 4}-17"
        yield call_at(
            f"c{number:05}", START + after, took + waited, "client", outcome, worker, (attempt,)
        )
    yield call_at(
        "odd",
        START + seconds,
        0.0,
        "client",
        "bad_arguments",
        "node1-17",
        problem="code is missing",
    )
