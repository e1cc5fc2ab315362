"""Chaos: rounds are planned by their seed, events happen at points of the journal, and the sandbox
counts by itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from sfusion.harness.core.journal import Journal
from sfusion.harness.lab.promises import Verdict
from sfusion.harness.lab.promises.permits import FlightCount
from sfusion.harness.lab.runs import RunResult, Task, run_one
from sfusion.harness.search.chaos.command import Round, count_at_sandbox, plan_round
from tests.harness.lab.promises.scenes import scene


def test_a_round_is_a_function_of_seed_and_number() -> None:
    assert plan_round(1, 4, 3).written == plan_round(1, 4, 3).written
    assert (
        len(
            {
                str(plan_round(seed, number, 3).written["events"])
                for seed in (1, 2)
                for number in (4, 5)
            }
        )
        == 4
    )


def test_every_kind_of_event_and_point_is_planned() -> None:
    events = [event for number in range(100) for event in plan_round(1, number, 3).events]
    targets = {f"{event.kind} {str(event.target).rstrip('0123456789')}" for event in events}
    killed = {
        f"{kind} {what}" for kind in ("kill", "pause") for what in ("n1-w", "node-", "limiter")
    }
    assert killed | {"kill driver", "resize ", "crash sandbox"} <= targets
    points = Counter(
        name for event in events for name, number in event.after or () if number is not None
    )
    assert set(points) == {"grants", "arrivals", "in_flight", "ended"}


def test_rounds_hold_in_sim_and_all_their_events_happen() -> None:
    for number in (2, 5, 13):  # with a stopped limiter; with a killed and resized one
        result = run_one(Task(plan_round(1, number, 3), "sim"))
        assert [verdict.sentence for verdict in result.verdicts if not verdict.held] == []
        assert not count_at_sandbox(result.journal).broken


@pytest.mark.parametrize(
    ("after", "source", "event", "number"),
    [
        ({"grants": 5}, "client", "permit_granted", 5),
        ({"arrivals": 4}, "server", "arrived", 4),
        ({"in_flight": 3}, "server", "arrived", 3),
        ({"ended": 6}, "world", "returned", 6),
    ],
)
def test_an_event_happens_at_its_point(
    after: dict[str, int], source: str, event: str, number: int
) -> None:
    """Three permits, so the third arrival is the first with three in flight."""
    journal = run_one(Task(scene(events=[{"after": after, "kill": "n2-w1"}]), "sim")).journal
    place = next(place for place, one in enumerate(journal.events) if one["event"] == "killed")
    before = [
        one for one in journal.events[:place] if (one["source"], one["event"]) == (source, event)
    ]
    assert len(before) >= number
    assert before[number - 1]["at"] == journal.events[place]["at"]


def test_a_call_that_ended_is_not_lost_with_a_worker_that_dies_in_the_same_moment() -> None:
    point = {"after": {"in_flight": 2}}
    result = run_one(
        Task(scene(events=[{**point, "cancel": 1.0}, {**point, "kill": "n2-w1"}]), "sim")
    )
    assert [verdict.sentence for verdict in result.verdicts if not verdict.held] == []


def test_a_stopped_limiter_takes_no_permits_from_those_who_could_not_renew_them() -> None:
    slow = {"calls": 12, "concurrency": 6, "program": {"seconds": "9s"}}
    stop = [{"after": {"in_flight": 3}, "pause": "limiter", "seconds": "8s"}]
    tools = {"rate_limit": 3, "permit_lease": 3}
    result = run_one(Task(scene(load=slow, tools=tools, events=stop), "sim"))
    assert [verdict.sentence for verdict in result.verdicts if not verdict.held] == []
    assert Counter(one["event"] for one in result.journal.events)["expired"] == 0
    seen = count_at_sandbox(result.journal)
    assert (seen.peak, seen.broken) == (3, 0)


def test_a_limit_changed_while_the_limiter_is_dead_applies_when_it_is_back() -> None:
    events = [
        {"after": {"grants": 4}, "kill": "limiter", "seconds": "2s"},
        {"after": {"grants": 4}, "at": "1s", "resize": 1},
    ]
    journal = run_one(Task(scene(events=events), "sim")).journal
    names = [
        one["event"]
        for one in journal.events
        if one["event"] in ("limiter_died", "limiter_started", "resized")
    ]
    assert names == ["limiter_started", "limiter_died", "limiter_started", "resized"]


# -- what the sandbox counts --


def counted(*events: tuple[str, str, dict[str, Any]]) -> int:
    journal = Journal({})
    journal.note(0.0, "world", "began", limit=1, lease=2.0)
    for number, (source, event, facts) in enumerate(events, 1):
        journal.note(number, source, event, **facts)
    return count_at_sandbox(journal).broken


def test_the_sandbox_counts_requests_over_the_limit_but_not_those_given_up() -> None:
    first, second = (("server", "arrived", {"call": call, "attempt": 1}) for call in ("c1", "c2"))
    assert counted(first, second) == 1
    given_up = ("world", "cancelled", {"call": "c1"})
    assert counted(first, given_up, second) == 0
    assert counted(given_up, first, second) == 0, "the request was still on its way"
    assert counted(("limiter", "resized", {"rate_limit": 2}), first, second) == 0
    pause, resume = (("world", f"worker_{what}", {"worker": "w"}) for what in ("paused", "resumed"))
    called = ("world", "called", {"call": "c1", "worker": "w"})
    assert (
        counted(called, pause, ("world", "log", {}), ("world", "log", {}), resume, first, second)
        == 0
    )
    assert counted(called, pause, resume, first, second) == 1, (
        "it was stopped for less than a lease"
    )


# -- the report --


def test_a_round_says_where_sim_and_reality_differ() -> None:
    scenario = scene(events=[{"after": {"grants": 5}, "pause": "limiter", "seconds": "2s"}])
    sim = run_one(Task(scenario, "sim"))
    broken = [
        Verdict("no_permit_leaked", "broken", "permit <1> was never returned"),
        *sim.verdicts[1:],
    ]
    again = replace(
        sim, task=Task(scenario.changed(schedule={"random": 7}), "sim"), verdicts=broken[:1]
    )
    real = RunResult(
        Task(scenario, "ray"), Journal(sim.journal.header, sim.journal.events[:-20]), broken, 1.0
    )
    same = Round(1, scenario, sim, [sim])
    other = Round(2, scenario, real, [sim, again], FlightCount(4, 1, [{"at": 2.0}], 4, 3))
    assert (same.state, same.problems, same.disagreements, same.moved) == ("held", [], [], 0)
    assert other.state == "broken"
    unknown = replace(sim, verdicts=[Verdict("no_permit_leaked", "unknown", "it did not start")])
    assert Round(4, scenario, unknown, [sim]).state == "unknown"
    too_many = "at 2 s the sandbox had 4 requests in flight; the limit was 3"
    assert other.problems == ["broken: no_permit_leaked: permit <1> was never returned", too_many]
    assert other.sim_problems == [
        "schedule 7: broken: no_permit_leaked: permit <1> was never returned"
    ]
    assert not any("no_permit_leaked" in one for one in other.disagreements), (
        "one of the schedules shows it"
    )
    alone = Round(3, scenario, real, [sim])
    assert "no_permit_leaked: ray broken, sim none" in alone.disagreements
    assert other.moved > 0
    assert other.events == ["pause limiter for 2 s after grants 5"]
