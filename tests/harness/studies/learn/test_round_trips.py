"""What is learned from the log of a production whose trouble is known: the cause, and a scenario
that does the same.

Here the log is the journal of a run in virtual time. ``benchmarks/learn_round_trips.py`` plays the
same productions in real time; docs/logs.md#learn-a-scenario has its figures.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.learn_round_trips import CAUSES, PRODUCTIONS, production
from sfusion.harness.lab.promises import RunEvents
from sfusion.harness.lab.runs.runner import run_scenario
from sfusion.harness.lab.scenarios import parse_scenarios
from sfusion.harness.studies.learn.check import check
from sfusion.harness.studies.learn.draft import scenario_text
from sfusion.harness.studies.learn.learned import Learned, learn

FEWER_CALLS = 200


def learned_from(data: dict[str, object]) -> Learned:
    (result,) = run_scenario(data, check=False)
    return learn(RunEvents(result.journal).records)


def test_every_production_has_a_known_cause() -> None:
    assert {file.stem for file in Path(PRODUCTIONS).glob("*.yaml")} == set(CAUSES)


@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_is_named_and_the_scenario_behaves_like_the_log(name: str) -> None:
    data = production(name).plain
    data["load"]["calls"] = min(data["load"]["calls"], FEWER_CALLS)
    learned = learned_from(data)
    assert learned.headline == CAUSES[name]
    text = scenario_text(learned, f"learned-{name}", f"the production {name}")
    parse_scenarios(text)
    checked = check(learned, text)
    assert checked.agrees, (checked.broken, [row for row in checked.rows if not row.agrees], text)


def test_a_delay_that_grows_with_time_is_not_a_queue() -> None:
    """More calls wait the longer it lasts, so a line before some workers seems to explain it."""
    learned = learned_from(production("degradation").plain)
    assert learned.headline == "degradation"


def test_a_log_in_which_nothing_is_wrong_names_no_cause() -> None:
    load = {"calls": 120, "concurrency": 8, "program": {"seconds": {"lognormal": [0.2, 0.5]}}}
    learned = learned_from(
        {"scenario": "calm", "about": "x", "load": load, "promises": ["every_call_ends_once"]}
    )
    assert learned.causes == ()
    assert learned.load.concurrency == 8
    assert "faults" not in scenario_text(learned, "calm", "a calm day")
