"""A regular expression that backtracks ends the run with a clear error instead of hanging it."""

from __future__ import annotations

from typing import Any

import pytest

from sfusion.fakes.errors import SlowPattern
from sfusion.fakes.faults import pattern
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
    ],
    ids=["code of a rule", "sees of a turn"],
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


def test_a_pattern_is_given_up_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern, "slow_patterns", {})
    with pytest.raises(SlowPattern):
        pattern.matches(BACKTRACKS, TEXT)
    with pytest.raises(SlowPattern):
        pattern.matches(BACKTRACKS, "-")
