"""A program that loses every attempt, while its neighbours succeed, perhaps caused that."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.worlds import sim
from sfusion_tools import CodeRunner
from sfusion_tools.outcome import Outcome
from sfusion_tools.reward import score
from sfusion_tools.runner import Parts
from sfusion_tools.sandbox.fleet import Endpoint
from sfusion_tools.sandbox.provoked import LEAST_FAILURES, Suspicion

KILLS = "import os  # kills its server\nprint(os.getpid())"
FAST = {"limiter": "local", "memory_limit_mb": -1, "backoff_base": 0.01, "backoff_cap": 0.02}


@contextmanager
def runners(neighbours: bool, deaths: int = 4, **settings: Any) -> Iterator[CodeRunner]:
    """Yield a runner whose sandbox dies of one program, so often, and is back at once.

    Whenever its call backs off, a neighbour runs a healthy program, if there is one.
    """
    crash = {
        "code": "kills its server",
        "first_attempts": deaths,
        "what": {"crash": 0.0},
        "phase": "after",
    }
    with FakeSandbox(executor="python", faults=[crash]) as sandbox:
        neighbour = CodeRunner(sandbox.url, **FAST)

        def on_event(name: str, facts: dict[str, Any]) -> None:
            if name == "backing_off" and neighbours:
                assert neighbour.run_sync("print('fine')").outcome is Outcome.OK

        yield CodeRunner(
            sandbox.url, max_attempts=4, parts=Parts(on_event=on_event), **FAST, **settings
        )


def test_a_program_that_kills_its_sandbox_is_provoked_while_others_succeed() -> None:
    with runners(neighbours=True) as runner:
        result = asyncio.run(runner.run(KILLS))
    assert len(result.attempts) == 4
    assert (result.lost, result.provoked, result.scored) == (True, True, False)
    assert result.metrics()["infrastructure"]
    assert result.metrics()["provoked"]


def test_a_program_that_ran_in_the_end_is_not_provoked() -> None:
    with runners(neighbours=True, deaths=LEAST_FAILURES, score_provoked=True) as runner:
        result = asyncio.run(runner.run(KILLS))
    assert (len(result.attempts), result.outcome) == (LEAST_FAILURES + 1, Outcome.OK)
    assert (result.provoked, result.scored) == (False, False)


def test_without_neighbours_it_is_an_outage() -> None:
    with runners(neighbours=False) as runner:
        result = asyncio.run(runner.run(KILLS))
    assert (result.lost, result.provoked) == (True, False)


@pytest.mark.parametrize(("setting", "expected"), [(False, None), (True, 0.0)])
def test_the_setting_scores_it_instead_of_leaving_it_out(
    setting: bool, expected: float | None
) -> None:
    tests = {"inputs": ["1"], "outputs": ["1"]}
    with runners(neighbours=True, score_provoked=setting) as runner:
        scoring = asyncio.run(score(f"```python\n{KILLS}\n```", tests, runner))
        call = scoring.calls[0]
    assert scoring.score == expected
    assert call is not None
    assert call.provoked
    assert call.metrics()["infrastructure"] is not setting


def suspected(*steps: tuple[Outcome, bool]) -> bool:
    """Fail attempts in turn, each after another program was answered or not."""
    endpoint = Endpoint("http://a:1")
    suspicion = Suspicion()
    for outcome, answered in steps:
        endpoint.answers += answered
        suspicion.failed(outcome, endpoint)
    return suspicion.provoked


LOST, HUNG, FULL, BAD = (
    Outcome.UNREACHABLE,
    Outcome.TRANSPORT_TIMEOUT,
    Outcome.THROTTLED,
    Outcome.BAD_RESPONSE,
)


@pytest.mark.parametrize(
    ("steps", "provoked"),
    [
        ([(LOST, True)] * LEAST_FAILURES, True),
        ([(HUNG, True), (LOST, True), (Outcome.SANDBOX_ERROR, True)], True),
        ([(LOST, True)] * (LEAST_FAILURES - 1), False),
        ([(LOST, True), (LOST, True), (LOST, False)], False),
        ([(LOST, True), (LOST, False), (LOST, False), (LOST, False)], False),
        ([(LOST, True), (LOST, True), (LOST, False), (LOST, True)], True),
        ([(LOST, True), (FULL, True), (LOST, True), (LOST, True)], True),
        ([(FULL, True)] * LEAST_FAILURES, False),
        ([(LOST, True), (BAD, True), (LOST, True), (LOST, True)], False),
    ],
)
def test_every_attempt_must_fail_and_every_pause_have_a_witness(
    steps: list[tuple[Outcome, bool]], provoked: bool
) -> None:
    assert suspected(*steps) is provoked


@pytest.mark.parametrize(
    ("answered", "provoked"),
    [({"a", "b"}, True), ({"a"}, False), (set(), False)],
)
def test_the_sandboxes_of_several_attempts_are_each_seen_to_work(
    answered: set[str], provoked: bool
) -> None:
    fleet = {name: Endpoint(f"http://{name}:1") for name in ("a", "b", "c")}
    suspicion = Suspicion()
    for name, endpoint in fleet.items():
        if name == "c":
            for other in answered:
                fleet[other].answers += 1
        suspicion.failed(LOST, endpoint)
    assert suspicion.provoked is provoked


@pytest.mark.parametrize(("neighbours", "setting"), [(300, True), (300, False), (0, True)])
def test_in_sim_a_killer_among_others_is_scored_only_by_the_setting(
    neighbours: int, setting: bool
) -> None:
    kills = {"name": "kills", "call": "c0001", "what": {"crash": 0.05}, "phase": "during"}
    scenario = Scenario.from_data(
        {
            "scenario": "killer",
            "about": "One program kills its sandbox at every attempt.",
            "cluster": {"nodes": 1, "workers_per_node": 1},
            "tools": {"max_attempts": 4, "score_provoked": setting},
            "sandbox": {"faults": [kills]},
            "load": {"calls": 1 + neighbours, "concurrency": 8, "program": {"seconds": 0.1}},
        }
    )
    events = sim.run(scenario).events
    (returned,) = [
        event for event in events if event["event"] == "returned" and event["call"] == "c0001"
    ]
    assert returned["outcome"] == "unreachable"
    assert returned["infrastructure"] is not (setting and neighbours > 0)
