"""The search finds the smallest scenario that fails in the same way. The failures here are
invented: nothing is run."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from sfusion.harness.core.journal import Journal
from sfusion.harness.lab.promises import How, read_promise
from sfusion.harness.lab.scenarios import Scenario, parse_scenarios, read_scenarios, scenario_files
from sfusion.harness.lab.worlds import sim
from sfusion.harness.search.shrink import Budget, Failure, shrink
from sfusion.harness.search.shrink.reductions import REDUCTIONS
from tests.harness.lab.promises.scenes import BASE
from tests.harness.lab.runs.test_determinism import STORMY

UNLIMITED = Budget(cases=100_000, seconds=None)
FAULTS = [
    {"name": "a", "probability": 0.1, "what": {"status": 503}},
    {"name": "b", "every": 3, "phase": "after", "what": {"status": 504}},
    {"name": "c", "after": 40, "what": [{"delay": "1300ms"}, "reset"]},
]


def big(**keys: Any) -> Scenario:
    data = {
        **BASE,
        "seed": 7,
        "cluster": {"nodes": 4, "workers_per_node": 8, "link": {"loss": 0.1}},
        "tools": {"rate_limit": 30, "permit_lease": 4},
        "sandbox": {"model": {"kind": "quota", "in_flight": 20}, "instances": 3, "faults": FAULTS},
        "load": {
            "calls": 500,
            "concurrency": 100,
            "program": [
                {"seconds": {"lognormal": [0.2, 0.5]}},
                {"share": 0.1, "prints": "{call}\n"},
            ],
            "cancel": {"share": 0.2, "after": "1s"},
        },
        "events": [
            {"at": "1234ms", "kill": "n3-w2"},
            {"at": "2s", "kill": "limiter", "seconds": "1s"},
        ],
        "promises": ["every_call_ends_once", {"outcomes": {"ok": "all"}}, "no_permit_leaked"],
    }
    return Scenario.from_data({**data, **keys})


def smallest(fails: Callable[[Scenario], bool], **keys: Any) -> dict[str, Any]:
    found = shrink(big(**keys), fails, UNLIMITED)
    assert found.finished
    assert fails(found.scenario)
    return found.scenario.plain


def test_whatever_the_failure_does_not_need_goes() -> None:
    assert smallest(lambda scenario: True) == {
        "scenario": "test",
        "about": "A scenario of the tests.",
        "seed": 7,
        "tools": {"rate_limit": 1},
        "load": {"calls": 1, "concurrency": 1},
        "promises": ["every_call_ends_once"],
    }


def test_a_large_number_is_found_in_a_few_runs() -> None:
    def fails(scenario: Scenario) -> bool:
        part = scenario.load.program if scenario.load is not None else None
        size = re.search(r"fill:(\d+)", str(part))
        return size is not None and int(size[1]) >= 100_000

    found = shrink(
        big(load={"calls": 1, "program": {"prints": "{fill:262144}\n"}}),
        fails,
        Budget(cases=300, seconds=None),
    )
    assert found.finished
    assert found.scenario.plain["load"]["program"] == {"prints": "{fill:100000}\n"}


@pytest.mark.parametrize("number", [9.0, "9"])
def test_numbers_may_be_written_otherwise(number: Any) -> None:
    def fails(scenario: Scenario) -> bool:
        return scenario.load is not None and scenario.load.calls >= 5

    load = smallest(fails, load={"calls": number, "concurrency": number})["load"]
    assert load == {"calls": 5, "concurrency": 1}


def test_what_it_needs_stays_and_is_as_small_as_possible() -> None:
    def fails(scenario: Scenario) -> bool:
        kinds = {action.kind for rule in scenario.sandbox.faults for action in rule.what}
        load, promises = scenario.load, [promise.name for promise in scenario.promises]
        return bool(
            "reset" in kinds
            and load
            and load.calls >= 7
            and load.concurrency >= 3
            and len(scenario.cluster.workers) >= 2
            and any(event.kind == "kill" and event.at > 0.3 for event in scenario.events)
            and "no_permit_leaked" in promises
        )

    found = smallest(fails)
    assert found["promises"] == ["no_permit_leaked"]
    assert (found["load"]["calls"], found["load"]["concurrency"]) == (7, 3)
    assert found["sandbox"] == {"faults": [{"name": "c", "what": ["reset"]}]}
    assert len(found["events"]) == 1
    assert found["events"][0]["at"] == 0.5


def test_chance_becomes_a_rule_that_always_strikes_and_a_distribution_a_plain_number() -> None:
    def fails(scenario: Scenario) -> bool:
        load = scenario.load
        assert load is not None
        return (
            any(rule.name == "a" for rule in scenario.sandbox.faults)
            and load.program[0].seconds.numbers[0] >= 0.15
        )

    found = smallest(fails)
    assert found["sandbox"]["faults"] == [{"name": "a", "what": {"status": 503}}]
    assert found["load"]["program"] == {"seconds": 0.2}


@pytest.mark.parametrize("needed", [{(40, 2)}, {(3, 1), (90, 3)}, {(10, 1), (11, 1), (57, 1)}])
def test_a_schedule_is_reduced_to_the_deviations_that_matter(needed: set[tuple[int, int]]) -> None:
    def fails(scenario: Scenario) -> bool:
        given = scenario.schedule and scenario.schedule.deviations
        return needed <= set(given or ())

    noise = {(step, 1 + step % 3) for step in range(1, 200, 2)}
    given = sorted(dict([*noise, *needed]).items())
    found = smallest(fails, schedule={"deviations": [list(pair) for pair in given]})
    assert {tuple(pair) for pair in found["schedule"]["deviations"]} == needed


def test_a_seeded_schedule_is_spelled_out_and_other_seeds_may_serve_a_smaller_scenario(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(scenario: Scenario) -> bool:
        part = scenario.schedule
        if part is None:
            return False
        if part.random is not None:
            load = scenario.load
            return part.random == 5 or bool(load and load.calls > 3)
        return (5, 1) in (part.deviations or ())

    played = Journal({}, [{"deviations": [(2, 1), (5, 1), (8, 2)]}])
    monkeypatch.setattr(sim, "run", lambda _: played)
    found = shrink(big(schedule={"random": 3}), fails, UNLIMITED)
    assert found.scenario.plain["schedule"] == {"deviations": [[5, 1]]}
    assert found.scenario.plain["load"]["calls"] == 1


def test_the_search_stops_when_its_budget_is_used_up() -> None:
    runs: list[Scenario] = []

    def fails(scenario: Scenario) -> bool:
        runs.append(scenario)
        return True

    found = shrink(big(), fails, Budget(cases=5, seconds=None))
    assert (len(runs), found.cases, found.finished) == (5, 5, False)
    assert found.scenario.plain == runs[-1].plain
    assert shrink(big(), fails, Budget(seconds=0.0)).cases == 0


def test_reductions_of_bundled_scenarios_end_and_never_change_the_seed() -> None:
    cells = [read_scenarios(file)[0] for file in scenario_files([])[::7]]
    assert len(cells) > 15
    for cell in cells:
        for reduction in REDUCTIONS:
            for variant in reduction(cell.plain):
                assert variant["seed"] == cell.seed
                assert variant != cell.plain, reduction.__name__
        found = shrink(cell, lambda scenario: True, UNLIMITED)
        assert found.cases < 60, "a failure that needs nothing is found soon"


@pytest.mark.parametrize(
    ("promise", "kind", "one", "other"),
    [
        ("every_call_ends_once", "never_ended", {"call": "c0001"}, {"call": "r003.t1.2"}),
        (
            {"outcomes": {"ok": "all"}},
            "not_as_promised",
            {"count": 1, "total": 1, "outcome": "ok", "promised": 63, "summary": ["ok 1"]},
            {
                "count": 60,
                "total": 64,
                "outcome": "ok",
                "promised": "all",
                "summary": ["ok 60", "throttled 4"],
            },
        ),
        (
            "text_is_truthful",
            "missing",
            {"call": "c0004", "prints": "c0004", "text": "it's 5"},
            {"call": "c0005", "prints": "x", "text": ""},
        ),
        (
            "no_stall",
            "stood_still",
            {"at": 1.2, "gap": 30, "calls": ["c0001", "c0002"], "bound": 10},
            {"at": 3, "gap": 31.5, "calls": ["c0009"], "bound": 10},
        ),
    ],
)
def test_failures_are_the_same_whatever_their_ids_numbers_and_texts(
    promise: Any, kind: str, one: dict[str, Any], other: dict[str, Any]
) -> None:
    made = [
        read_promise(promise).broken(kind, [], count, **facts)
        for count, facts in ((1, one), (18, other))
    ]
    first, second = (Failure(verdict.how, verdict.sentence) for verdict in made)
    assert first == second
    assert first.sentence != second.sentence


@pytest.mark.parametrize(
    ("kind", "other"),
    [("not_allowed", {"outcome": "ok"}), ("not_as_promised", {"outcome": "throttled"})],
)
def test_failures_differ_by_kind_and_by_what_their_promise_declares(
    kind: str, other: dict[str, str]
) -> None:
    facts = {"count": 1, "total": 1, "outcome": "ok", "promised": 63, "summary": ["ok 1"]}
    promise = read_promise({"outcomes": {"ok": "all"}})
    assert (
        promise.broken("not_as_promised", [], **facts).how
        != promise.broken(kind, [], **facts | other).how
    )


def test_what_a_tool_raises_is_told_apart_by_type_and_function() -> None:
    def raised(**facts: Any) -> How:
        usual = {
            "raised": "KeyError",
            "place": "tool.py:12",
            "function": "tool.py:run",
            "what": "KeyError: 7",
        }
        usual["call"] = "c0001"
        return read_promise("tool_never_raises").broken("raised", [], **usual | facts).how

    assert raised() == raised(
        call="c0002", what="KeyError: 8", place="tool.py:13"
    )  # a line moves with any edit above it
    assert raised() != raised(function="tool.py:execute")
    assert raised() != raised(raised="ValueError")


def test_the_stormy_scenario_can_be_reduced_to_almost_nothing() -> None:
    found = shrink(parse_scenarios(STORMY)[0], lambda scenario: True, UNLIMITED).scenario.plain
    assert set(found) == {"scenario", "about", "seed", "tools", "load", "promises"}
