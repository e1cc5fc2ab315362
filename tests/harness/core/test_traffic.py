"""What the traffic of a server shows about a client, from events alone."""

from __future__ import annotations

from typing import Any

from sfusion.harness.core.traffic import Traffic, TrafficVerdict


def traffic(*attempts: dict[str, Any]) -> Traffic:
    """Return the traffic of attempts: the call, when it came and ended, and how."""
    found = Traffic()
    numbers: dict[str, int] = {}
    for attempt in attempts:
        call = attempt["call"]
        numbers[call] = numbers.get(call, 0) + 1
        key = {"call": call, "attempt": numbers[call]}
        found.note({"event": "arrived", "at": attempt["at"], "in_flight": 1, **key})
        if "fault" in attempt:
            found.note({"event": "strike", "rule": "r", "kind": attempt["fault"], **key})
        if "status" in attempt:
            end = {
                "event": "answered",
                "at": attempt.get("ended", attempt["at"]),
                "status": attempt["status"],
                "client_gone": attempt.get("gone", False),
            }
            if "wait" in attempt:
                end["retry_after"] = attempt["wait"]
            found.note({**end, **key})
    return found


def verdict(check: str, found: Traffic) -> TrafficVerdict | None:
    return next((each for each in found.verdicts() if each.check == check), None)


def state(check: str, *attempts: dict[str, Any]) -> str:
    found = verdict(check, traffic(*attempts))
    return "not judged" if found is None else found.state


def test_retry_after_is_held_if_it_was_waited_for() -> None:
    refused = {"call": "a", "at": 0.0, "status": 429, "wait": "5"}
    again = {"call": "a", "status": 200}
    assert state("retry_after_honoured", refused, {**again, "at": 5.0}) == "held"
    assert state("retry_after_honoured", refused, {**again, "at": 4.0}) == "broken"
    assert state("retry_after_honoured", refused, {**again, "call": "b", "at": 1.0}) == "unknown"
    dated = {**refused, "wait": "Wed, 21 Oct 2026 07:28:00 GMT"}
    assert state("retry_after_honoured", dated, {**again, "at": 1.0}) == "unknown"


def test_a_call_that_is_sent_again_at_once_is_hammered_only_if_that_repeats() -> None:
    refused = [{"call": "a", "at": at, "status": 503} for at in (0.0, 0.01, 0.02)]
    assert state("pauses", *refused) == "broken"
    assert state("pauses", *refused[:2]) == "not judged"
    slow = [{"call": "a", "at": at, "status": 503} for at in (0.0, 1.0, 3.0)]
    assert state("pauses", *slow) == "not judged"


def test_a_call_that_is_never_sent_again_is_advice() -> None:
    lost = {"call": "a", "at": 0.0, "status": 429}
    saved = [{"call": "b", "at": 1.0, "status": 0}, {"call": "b", "at": 2.0, "status": 200}]
    found = verdict("retries", traffic(lost, *saved))
    assert found is not None
    assert (found.state, found.sentence) == (
        "advice",
        "not sent again: 1 of 2 that failed at first (1 after 429)",
    )
    assert found.remedy
    assert state("retries", *saved) == "held"
    assert state("retries", {**lost, "wait": "60"}) == "held", "nobody has to wait for that"
    assert state("retries", {**lost, "status": 200}) == "unknown"
    cut = {**lost, "status": 200, "fault": "truncate"}
    assert state("retries", cut) == "advice"
    assert state("retries", {**cut, "fault": "delay"}) == "unknown"


def test_a_request_that_failed_for_good_is_not_denied() -> None:
    served = {"call": "a", "at": 0.0, "status": 200}
    failed = [{"call": call, "at": 1.0, "status": 500} for call in "bc"]
    refused = {"call": "d", "at": 2.0, "status": 422}
    found = verdict("retries", traffic(served, *failed, refused))
    assert found is not None
    assert (found.state, found.sentence) == (
        "unknown",
        "no call's first request ended with 429, 502, 503, 504 or without an answer; "
        "other failures: 1 with 422, 2 with 500",
    )
    found = verdict("retries", traffic(served))
    assert found is not None
    assert found.sentence.endswith("without an answer")


def test_a_request_in_flight_has_not_failed() -> None:
    assert state("retries", {"call": "a", "at": 0.0}) == "unknown"


def test_what_the_server_refuses_and_what_the_client_drops_is_told() -> None:
    assert state("sent_as_asked", {"call": "a", "at": 0.0, "status": 422}) == "broken"
    struck = {"call": "a", "at": 0.0, "status": 404, "fault": "status"}
    assert state("sent_as_asked", struck) == "not judged"
    gone = {"call": "a", "at": 0.0, "ended": 1.0, "status": 0, "gone": True}
    assert state("programs_waited_for", gone) == "advice"
    again = [{"call": "a", "at": at, "status": 200} for at in (0.0, 1.0)]
    assert state("no_duplicate_execution", *again) == "advice"
    assert state("no_duplicate_execution", again[0]) == "held"
    assert state("deadline_honoured", {"call": "a", "at": 0.0}) == "unknown"


def test_each_call_has_a_line_and_what_is_broken_comes_first() -> None:
    found = traffic(
        {"call": "a", "at": 0.0, "status": 503, "fault": "status", "wait": "1"},
        {"call": "a", "at": 0.5, "status": 200},
        {"call": "b", "at": 1.0, "status": 429},
        {"call": "c", "at": 2.0, "status": 200},
    )
    assert found.call_lines(2) == [
        "call 1 (a): 503 (r, Retry-After 1), then 200",
        "call 2 (b): 429; was not sent again",
        "and 1 more call",
    ]
    lines = found.text().splitlines()
    assert lines[0] == "Verdict over the traffic: 3 calls, 4 requests, at most 1 in flight"
    assert lines[1].split()[:2] == ["broken", "retry_after_honoured"]
    assert lines[2].strip().startswith("A right client waits as long as Retry-After says")
