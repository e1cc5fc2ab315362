"""The parameters of promises, on runs that just meet them and just miss them."""

from __future__ import annotations

from typing import Any

import pytest

from sfusion.harness.core.journal import Journal
from sfusion.harness.lab.promises import Verdict, check_promises, read_promise
from sfusion.harness.lab.worlds import sim
from tests.harness.lab.promises.scenes import scene


@pytest.fixture(scope="module")
def journal() -> Journal:
    """24 calls: 18 end ok and 6 with sandbox_error, some after a first attempt that got 503."""
    faults = [
        {"call": ["c000[1-6]"], "what": "sandbox_error"},
        {"call": ["c0010"], "first_attempts": 1, "what": {"status": 503}},
    ]
    tools = {"rate_limit": 3, "retry_may_have_run": False}
    return sim.run(scene(tools=tools, sandbox={"faults": faults}))


def verdict(journal: Journal, promise: Any) -> Verdict:
    return check_promises(journal, [read_promise(promise)])[0]


@pytest.mark.parametrize(
    ("ok", "errors", "state"),
    [
        (18, 6, "held"),
        (17, 6, "broken"),
        ("some", "some", "held"),
        ("at least 18", "at most 6", "held"),
        ("at least 19", "some", "broken"),
        ("at most 17", "some", "broken"),
        ("75%", "25%", "held"),
        ("at least 75%", "at most 25%", "held"),
        ("at least 76%", "some", "broken"),
        ("all", "none", "broken"),
    ],
)
def test_outcomes_are_counted_as_written(
    journal: Journal, ok: Any, errors: Any, state: str
) -> None:
    assert verdict(journal, {"outcomes": {"ok": ok, "sandbox_error": errors}}).state == state


def test_an_outcome_that_is_not_named_must_not_occur(journal: Journal) -> None:
    found = verdict(journal, {"outcomes": {"ok": "some"}})
    assert found.state == "broken"
    assert "sandbox_error" in found.sentence
    assert found.count == 6


@pytest.mark.parametrize(
    ("promise", "state"),
    [
        ({"attempts_per_call": 2}, "held"),
        ({"attempts_per_call": 1}, "broken"),
        ({"attempts_per_call": {"at_least": 1}}, "held"),
        ({"attempts_per_call": {"at_least": 2}}, "broken"),
        ({"no_starvation": "10s"}, "held"),
        ({"no_starvation": "1ms"}, "broken"),
        ({"in_flight_within_limit": {"limit": 3}}, "held"),
        ({"in_flight_within_limit": {"limit": 2}}, "broken"),
        ({"deadline_honoured": "100s"}, "held"),
        ({"throughput_at_least": 1}, "held"),
        ({"throughput_at_least": 1000}, "broken"),
        ({"recovers_within": "10s"}, "held"),
    ],
)
def test_parameters_are_inclusive_bounds(journal: Journal, promise: Any, state: str) -> None:
    assert verdict(journal, promise).state == state


def test_calls_that_no_worker_was_left_to_make_are_excused_and_counted() -> None:
    both_nodes = [{"at": "200ms", "kill": "node-1"}, {"at": "200ms", "kill": "node-2"}]
    journal = sim.run(scene(events=both_nodes))
    found = verdict(journal, "every_call_ends_once")
    assert found.state == "held"
    assert found.sentence.endswith("not made, because no worker was left")
    journal.events[:] = [event for event in journal.events if event["event"] != "worker_died"]
    assert verdict(journal, "every_call_ends_once").sentence.endswith("of 24 calls were ever made")


def test_calls_of_a_killed_worker_are_excused_and_counted() -> None:
    found = verdict(
        sim.run(scene(events=[{"at": "200ms", "kill": "n1-w1"}])), "every_call_ends_once"
    )
    assert found.state == "held"
    assert "6 lost with their worker" in found.sentence


def test_a_call_that_ends_twice_is_found() -> None:
    journal = sim.run(scene())
    ending = next(event for event in journal.events if event["event"] == "returned")
    journal.events.append(ending)
    found = verdict(journal, "every_call_ends_once")
    assert found.sentence == f"call {ending['call']} ended 2 times"


def test_evidence_names_the_call_the_events_and_their_times() -> None:
    faulty = sim.run(scene(sandbox={"faults": [{"call": "c0003", "what": "sandbox_error"}]}))
    found = verdict(faulty, {"outcomes": {"ok": "all"}})
    assert found.evidence
    assert {event["call"] for event in found.evidence} == {"c0003"}
    assert all(event in faulty.events for event in found.evidence)
    assert [event["at"] for event in found.evidence] == sorted(
        event["at"] for event in found.evidence
    )


def test_a_run_that_the_horizon_breaks_off_is_unknown_and_says_how_far_it_came() -> None:
    load = {"calls": 100, "concurrency": 5, "program": {"seconds": "3s"}}
    cut = sim.run(scene(horizon="10s", tools={"rate_limit": 5}, load=load))
    found = verdict(cut, "in_flight_within_limit")
    assert (found.state, found.how.kind) == ("unknown", "broken_off")
    assert (
        found.sentence == "the run was broken off after 10 s (`horizon`), with 20 of 100 calls made"
    )


def test_a_limit_that_the_load_cannot_reach_is_unknown() -> None:
    load = {"calls": 12, "concurrency": 2, "program": {"seconds": "100ms"}}
    found = verdict(sim.run(scene(load=load)), "in_flight_within_limit")
    assert (
        found.sentence
        == "at most 2 calls were under way at once, the limit is 3: nothing could exceed it"
    )
    enough = scene(load={**load, "concurrency": 3})
    assert verdict(sim.run(enough), "in_flight_within_limit").held


def test_a_secret_that_occurs_by_chance_is_not_searched_for() -> None:
    short = sim.run(scene(tools={"rate_limit": 3, "headers": {"X-Shard": "1"}}))
    found = verdict(short, "no_secret_leaked")
    assert (found.state, found.how.kind, found.how.identity) == (
        "unknown",
        "too_short",
        (("secrets", "['headers.X-Shard']"),),
    )
    assert all("<secret>" not in str(event) for event in short.events)
