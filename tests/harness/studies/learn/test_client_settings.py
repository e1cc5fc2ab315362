"""What a log shows about the client's own limits: its timeouts, deadlines and attempts."""

from __future__ import annotations

from typing import Any

import pytest

from sfusion.harness.studies.learn.check import check
from sfusion.harness.studies.learn.draft import scenario_text
from sfusion.harness.studies.learn.learned import Learned
from tests.harness.studies.learn.test_round_trips import learned_from


def learned_of(tools: dict[str, Any], load: dict[str, Any], **more: Any) -> Learned:
    promises = ["every_call_ends_once"]
    return learned_from(
        {
            "scenario": "log",
            "about": "x",
            "tools": tools,
            "load": load,
            "promises": promises,
            **more,
        }
    )


def learned_and_checked(tools: dict[str, Any], load: dict[str, Any], **more: Any) -> Learned:
    """Learn from a run in virtual time; what is learned must behave like it."""
    learned = learned_of(tools, load, **more)
    text = scenario_text(learned, "learned", "a run")
    checked = check(learned, text)
    assert checked.agrees, (checked.broken, [row for row in checked.rows if not row.agrees], text)
    return learned


def setting(learned: Learned, key: str) -> Any:
    return learned.client[key][0]


def test_the_timeout_is_longer_than_every_program_that_was_answered() -> None:
    learned = learned_and_checked(
        {"rate_limit": 16, "default_timeout": 10, "transport_margin": 2},
        {"calls": 160, "concurrency": 16, "program": {"seconds": {"uniform": [2, 9]}}},
        events=[{"at": 40, "wedge": "sandbox-1", "seconds": 20}],
    )
    assert learned.headline == "wedge"
    assert setting(learned, "default_timeout") > 9
    assert setting(learned, "default_timeout") + setting(
        learned, "transport_margin"
    ) == pytest.approx(12)


def test_calls_that_were_told_to_wait_until_their_deadline_say_nothing_about_max_attempts() -> None:
    learned = learned_and_checked(
        {"rate_limit": 16},
        {"calls": 100, "concurrency": 16, "program": {"seconds": {"lognormal": [1.5, 0.5]}}},
        sandbox={"model": {"kind": "quota", "in_flight": 1, "retry_after": 1}},
    )
    assert learned.figures.outcomes["throttled"] > 10
    assert learned.headline == "quota"
    assert "max_attempts" not in learned.client


def test_requests_that_end_with_their_calls_show_the_deadline_of_the_whole_call() -> None:
    learned = learned_and_checked(
        {"rate_limit": 8, "total_timeout": 4},
        {"calls": 160, "concurrency": 48, "program": {"seconds": {"lognormal": [0.5, 0.4]}}},
    )
    assert [one.kind for one in learned.causes] == ["rate_limit"]
    assert setting(learned, "total_timeout") == 4
    assert not {"default_timeout", "call_deadline", "max_attempts"} & learned.client.keys()


def test_requests_that_end_with_the_attempts_of_their_calls_show_call_deadline() -> None:
    learned = learned_and_checked(
        {"rate_limit": 24, "call_deadline": 20},
        {"calls": 100, "concurrency": 24, "program": {"seconds": {"lognormal": [1.0, 0.5]}}},
        sandbox={"model": {"kind": "quota", "in_flight": 3, "retry_after": 1.5}},
    )
    assert [one.kind for one in learned.causes] == ["quota"]
    assert setting(learned, "call_deadline") == 20
    assert not {"default_timeout", "total_timeout", "max_attempts"} & learned.client.keys()


def test_a_deadline_hides_neither_the_outage_of_a_silent_sandbox_nor_the_timeout() -> None:
    learned = learned_of(
        {"rate_limit": 16, "default_timeout": 5, "transport_margin": 2, "call_deadline": 10},
        {"calls": 120, "concurrency": 16, "program": {"seconds": {"uniform": [1, 2]}}},
        events=[{"at": 10, "wedge": "sandbox-1", "seconds": 20}],
    )
    assert learned.headline == "wedge"
    assert setting(learned, "call_deadline") == 10
    assert setting(learned, "default_timeout") + setting(
        learned, "transport_margin"
    ) == pytest.approx(7)
    assert "max_attempts" not in learned.client


def test_calls_without_a_permit_in_time_show_queue_timeout_and_blame_the_limit() -> None:
    learned = learned_and_checked(
        {"rate_limit": 8, "queue_timeout": 2},
        {"calls": 400, "concurrency": 64, "program": {"seconds": {"lognormal": [0.5, 0.4]}}},
    )
    assert learned.figures.outcomes["throttled"] > 100
    assert [one.kind for one in learned.causes] == ["rate_limit"]
    assert setting(learned, "queue_timeout") == 2
    assert "got none" in learned.causes[0].evidence


@pytest.mark.parametrize("burst", [1, 3, 8])
def test_a_pace_shows_how_many_may_begin_at_once_after_a_pause(burst: int) -> None:
    learned = learned_of(
        {"rate_limit": 64, "requests_per_second": 5, "requests_burst": burst},
        {"calls": 60, "concurrency": 48, "program": {"seconds": {"lognormal": [0.1, 0.4]}}},
    )
    assert (setting(learned, "requests_per_second"), setting(learned, "requests_burst")) == (
        5,
        burst,
    )


def test_calls_that_got_no_permit_while_none_lasted_longer_show_total_timeout() -> None:
    learned = learned_of(
        {"rate_limit": 8, "total_timeout": 2},
        {"calls": 400, "concurrency": 64, "program": {"seconds": {"lognormal": [0.5, 0.4]}}},
    )
    assert [one.kind for one in learned.causes] == ["rate_limit"]
    assert setting(learned, "total_timeout") == 2
    assert "queue_timeout" not in learned.client


def test_an_outage_is_found_where_total_timeout_ends_the_calls() -> None:
    learned = learned_of(
        {"rate_limit": 8, "total_timeout": 6},
        {"calls": 160, "concurrency": 32, "program": {"seconds": {"lognormal": [0.5, 0.4]}}},
        events=[{"at": 8, "wedge": "sandbox-1", "seconds": 10}],
    )
    assert {one.kind for one in learned.causes} == {"wedge", "rate_limit"}
    assert setting(learned, "total_timeout") == 6


def test_calls_that_are_told_to_wait_and_never_sent_again_show_one_attempt() -> None:
    learned = learned_of(
        {"rate_limit": 16, "max_attempts": 1},
        {
            "calls": 120,
            "concurrency": 16,
            "think": {"exponential": 2.0},
            "program": {"seconds": {"lognormal": [0.5, 0.5]}},
        },
        sandbox={"model": {"kind": "quota", "in_flight": 3, "retry_after": 1}},
    )
    assert learned.figures.outcomes["throttled"] > 10
    assert setting(learned, "max_attempts") == 1


def test_calls_that_are_told_to_wait_and_give_up_show_between_which_times_their_deadline_is() -> (
    None
):
    learned = learned_and_checked(
        {"rate_limit": 16, "call_deadline": 20},
        {"calls": 100, "concurrency": 16, "program": {"seconds": {"uniform": [0.5, 0.6]}}},
        sandbox={"model": {"kind": "quota", "in_flight": 1, "retry_after": 2}},
    )
    assert setting(learned, "call_deadline") == pytest.approx(20, rel=0.1)
