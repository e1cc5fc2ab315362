"""A regular expression that backtracks ends the run with a clear error instead of hanging it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp
import pytest

from sfusion.fakes.errors import SlowPattern
from sfusion.fakes.faults import pattern
from sfusion.fakes.faults.pattern import PatternSearches
from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.lab.runs import run_scenario
from sfusion.harness.lab.scenarios import ScenarioError

BACKTRACKS = "(-|--)+$"
"""Patterns of letters and digits are refused when they are read; this one is found out only in a
search."""
TEXT = "-" * 60 + "b"


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern, "_SECONDS", 0.1)


@pytest.mark.parametrize(
    "where",
    [
        {
            "load": {"calls": 3, "program": {"prints": TEXT}},
            "sandbox": {"faults": [{"code": BACKTRACKS, "what": "hang"}]},
        },
        {
            "rollouts": {
                "count": 1,
                "turns": [{"programs": [{"prints": TEXT}]}, {"sees": BACKTRACKS}],
            }
        },
        {
            "rollouts": {
                "count": 1,
                "prompt": TEXT,
                "turns": [{"programs": [{}]}],
                "faults": [{"code": BACKTRACKS, "what": {"status": 503}}],
            }
        },
    ],
    ids=["code of a rule", "sees of a turn", "code of an engine's rule"],
)
def test_a_pattern_that_backtracks_ends_the_run(where: dict[str, Any]) -> None:
    scenario = {
        "scenario": "slow",
        "about": "It backtracks.",
        **where,
        "promises": ["every_call_ends_once"],
    }
    with pytest.raises(
        ScenarioError, match=r"slow: the regular expression '\(-\|--\)\+\$' takes more than 0.1 s"
    ):
        run_scenario(scenario)


HEALTHY = {
    "scenario": "healthy",
    "about": "It has no pattern at all.",
    "load": {"calls": 3},
    "promises": ["every_call_ends_once"],
}


def test_a_slow_pattern_of_a_fake_does_not_refuse_the_next_scenario() -> None:
    async def call() -> tuple[int, list[str]]:
        events: list[Mapping[str, Any]] = []
        async with (
            FakeSandbox(
                faults=[{"code": BACKTRACKS, "what": "hang"}], journal=events.append
            ) as sandbox,
            aiohttp.ClientSession() as session,
        ):
            body = {"code": TEXT, "language": "python"}
            async with session.post(f"{sandbox.url}/run_code", json=body) as answer:
                return answer.status, [event["event"] for event in events]

    status, events = asyncio.run(call())
    assert status == 500
    assert "slow_pattern" in events, "it is in the journal of the server that met it"
    (result,) = run_scenario(HEALTHY)
    assert result.ok


def test_a_slow_pattern_of_one_scenario_does_not_refuse_the_next() -> None:
    slow = {**HEALTHY, "sandbox": {"faults": [{"code": BACKTRACKS, "what": "hang"}]}}
    with pytest.raises(ScenarioError, match="takes more than"):
        run_scenario({**slow, "load": {"calls": 3, "program": {"prints": TEXT}}})
    (result,) = run_scenario(HEALTHY)
    assert result.ok


def test_a_pattern_is_given_up_only_once() -> None:
    searches = PatternSearches()
    with pytest.raises(SlowPattern):
        searches.matches(BACKTRACKS, TEXT)
    with pytest.raises(SlowPattern):
        searches.matches(BACKTRACKS, "-")
    assert PatternSearches().matches(BACKTRACKS, "-"), "others have not met that text"
