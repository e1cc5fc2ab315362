"""The calls of a batch as a flat dict: the same keys for every source of calls, and defined for
none."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from sfusion_tools import outcome_metrics
from sfusion_tools.outcome import Outcome
from sfusion_tools.rollout import RolloutDriver, format_parser, run_batch
from sfusion_tools.sandbox import Attempt, CallResult
from sfusion_tools.sandbox.tool import count_call
from sfusion_tools.schemas import ToolResponse
from tests.sfusion_tools.rollout.helpers import RecordingTool, ScriptedEngine, calling, request


def call(
    outcome: Outcome,
    attempts: int = 1,
    waited: float = 0.0,
    backed_off: float = 0.0,
    seconds: float = 1.0,
) -> CallResult:
    made = [Attempt(n, "http://s", outcome, 200, "", True, 0.0, 0.5) for n in range(attempts)]
    return CallResult(
        "c", outcome, attempts=made, waited=waited, backed_off=backed_off, seconds=seconds
    )


CALLS = [
    call(Outcome.OK, waited=1.0, seconds=2.0),
    call(Outcome.OK, waited=3.0, seconds=4.0),
    call(Outcome.THROTTLED, attempts=4, waited=5.0, backed_off=3.0, seconds=10.0),
    call(Outcome.BAD_ARGUMENTS, attempts=0, seconds=0.0),
]
EXPECTED = {
    "tools/calls": 4.0,
    "tools/infra_rate": 0.25,
    "tools/ok_rate": 0.5,
    "tools/throttled_rate": 0.25,
    "tools/bad_arguments_rate": 0.25,
    "tools/attempts_per_call": 2.0,
    "tools/permit_wait_s_p50": 3.0,
    "tools/permit_wait_s_p95": 4.8,
    "tools/total_s_p50": 4.0,
    "tools/total_s_p95": 9.4,
    "tools/backoff_share": 3 / 16,
}


def extras() -> list[Any]:
    """The calls as verl passes them on: some in one trajectory, some in another, none in a
    third."""
    first, second = SimpleNamespace(extra_fields={}), SimpleNamespace(extra_fields={})
    for agent_data, result in zip((first, first, second, second), CALLS, strict=True):
        count_call(agent_data, result.metrics())
    return [
        first.extra_fields["extras"],
        None,
        second.extra_fields,
        {"extras": "of another tool"},
        {},
    ]


@pytest.mark.parametrize(
    "batch",
    [
        CALLS,
        [result.metrics() for result in CALLS],
        extras(),
        [*CALLS, None, {"tokens": 3}, {"outcome": "fine"}],
    ],
    ids=["results", "metrics", "verl extras", "calls without an outcome"],
)
def test_every_source_of_calls_gives_the_same_metrics(batch):
    found = outcome_metrics(batch)
    assert {name: value for name, value in found.items() if value} == pytest.approx(EXPECTED)
    assert found.keys() == outcome_metrics([]).keys()
    assert {f"tools/{outcome.value}_rate" for outcome in Outcome} < found.keys()


def test_a_batch_without_calls_is_all_zero():
    found = outcome_metrics([])
    assert set(found.values()) == {0.0}
    assert all(
        isinstance(value, float) and math.isfinite(value)
        for value in outcome_metrics(CALLS).values()
    )


async def test_rollout_requests_are_a_batch():
    def answer(code: str) -> Any:
        if code == "raise":
            raise RuntimeError("broken")
        return ToolResponse(text=code), None, CALLS[int(code)].metrics()

    engine = ScriptedEngine(calling("0", "1", "2", "3", "raise"), "ok")
    batch = await run_batch(
        RolloutDriver(engine, [RecordingTool(answer)], format_parser("hermes")),
        [request(), request()],
    )
    found = outcome_metrics(batch, prefix="t/")
    assert (found["t/calls"], found["t/infra_rate"], found["t/raised_rate"]) == (10.0, 0.4, 0.2)
    assert found["t/permit_wait_s_p50"] == 3.0


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("batch", "calls"),
    [
        ([{"outcomes": None}, {"outcomes": 3}, {"outcomes": "ok"}], 0),
        ([{"outcomes": ["ok", None], "attempts": None, "total_s": 3, "permit_wait_s": [None]}], 1),
        (
            [
                {
                    "outcome": "ok",
                    "attempts": NAN,
                    "total_s": INF,
                    "permit_wait_s": "x",
                    "backoff_s": [1],
                }
            ],
            1,
        ),
        ([{"outcome": ["ok"]}, {"outcome": NAN}, NAN], 0),
    ],
)
def test_columns_without_numbers_count_as_not_measured(batch, calls):
    """A data frame fills the gaps of a batch with None or NaN."""
    found = outcome_metrics(batch)
    assert {name: value for name, value in found.items() if value} == (
        {"tools/calls": 1.0, "tools/ok_rate": 1.0} if calls else {}
    )


def test_arrays_are_columns():
    numpy = pytest.importorskip("numpy")
    columns = {
        "outcomes": numpy.array(["ok", "ok"], dtype=object),
        "total_s": numpy.array([1.0, NAN]),
    }
    found = outcome_metrics([columns])
    assert (found["tools/calls"], found["tools/total_s_p50"]) == (2.0, 1.0)


def test_what_is_not_a_batch_of_calls_is_refused():
    with pytest.raises(
        TypeError, match="expected metrics of calls, rollout requests or verl's extras, found 'ok'"
    ):
        outcome_metrics(["ok"])
