"""Verdicts that a hunt showed to be wrong, in journals that hold no more than what was judged
wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sfusion.harness.core.journal import Journal
from sfusion.harness.lab.promises import check_promises
from sfusion.harness.lab.promises.registry import read_promise

FAILED = "[Error, not output of a program: the sandbox failed.]"


def begun(**facts: Any) -> Journal:
    """Return a journal of a run that has just begun."""
    journal = Journal({"journal": 2, "scenario": "x", "cell": "", "seed": 0, "world": "sim"})
    usual = {"workers": ["n1-w1"], "sandboxes": ["sandbox-1"], "calls": 1, "secrets": 0}
    journal.note(0.0, "world", "began", **(usual | facts))
    return journal


def judged(journal: Journal, promise: str | dict[str, Any]) -> str:
    """End the run, and return how a promise is judged."""
    journal.note(9.0, "world", "ended")
    (verdict, *_) = check_promises(journal, [read_promise(promise)])
    return f"{verdict.state}: {verdict.sentence}"


@pytest.mark.parametrize(("paused", "state"), [(True, "held"), (False, "broken")])
def test_a_process_that_is_stopped_between_a_grant_and_its_request_is_excused(
    paused: bool, state: str
) -> None:
    """No process can know that it is about to be stopped."""
    journal = begun(workers=["n1-w1", "n1-w2"], limit=1, calls=2)
    first, second = ({"worker": f"n1-w{n}", "call": f"c000{n}", "attempt": 1} for n in (1, 2))
    for one in (first, second):
        journal.note(
            0.5,
            "world",
            "called",
            worker=one["worker"],
            call=one["call"],
            intent={"kind": "ok"},
            allowed=60,
        )
    journal.note(1.0, "client", "permit_granted", permit="p1-1", waited=0.0, **first)
    if paused:
        journal.note(0.9, "world", "worker_paused", worker="n1-w1", seconds=5.0)
    journal.note(4.0, "limiter", "expired", permit="p1-1")
    journal.note(4.0, "client", "permit_granted", permit="p1-2", waited=0.0, **second)
    journal.note(4.1, "client", "attempt_started", endpoint="sandbox-1", **second)
    journal.note(5.9, "client", "attempt_started", endpoint="sandbox-1", **first)
    for one in (first, second):
        journal.note(
            6.0, "server", "arrived", call=one["call"], attempt=1, path="/run_code", in_flight=1
        )
        journal.note(7.0, "client", "attempt_ended", outcome="ok", status=200, **one)
        journal.note(
            7.0,
            "world",
            "returned",
            call=one["call"],
            worker=one["worker"],
            outcome="ok",
            text="",
            chars=0,
        )
    told = judged(journal, "in_flight_within_limit")
    assert told.startswith(state), told


@pytest.mark.parametrize(
    ("pauses", "state"),
    [
        ((0.1347, 0.147, 0.1935, 0.1949, 0.195013, 0.195182), "held"),
        ((0.195,) * 6, "broken"),
        ((0.19449, 0.19451) * 3, "broken"),
        ([0.5 + number / 1250 for number in range(6)], "broken"),
        ([0.5 + number / 100 for number in range(6)], "held"),
    ],
)
def test_short_pauses_that_were_drawn_alike_are_no_herd(
    pauses: Sequence[float], state: str
) -> None:
    journal = begun()
    for number, seconds in enumerate(pauses):
        call = {"call": f"c000{number}", "worker": "n1-w1"}
        journal.note(0.0, "world", "called", intent={"kind": "ok"}, allowed=60, **call)
        journal.note(
            0.0, "server", "arrived", call=call["call"], attempt=1, path="/run_code", in_flight=1
        )
        journal.note(
            number / 5000, "client", "backing_off", attempt=1, seconds=seconds, asked=None, **call
        )
        journal.note(1.0, "world", "returned", outcome="ok", text="", chars=0, **call)
    told = judged(journal, "retries_spread")
    assert told.startswith(state), told


@pytest.mark.parametrize(
    ("left", "outcome", "text", "state"),
    [
        (1.0, "ok", "4\n", "held"),
        (2.0, "ok", "4\n", "broken"),
        (1.0, "unreachable", FAILED, "held"),
        (1.0, None, FAILED, "held"),
    ],
)
def test_an_answer_may_be_sent_in_the_moment_in_which_the_sandbox_crashes(
    left: float, outcome: str | None, text: str, state: str
) -> None:
    journal = begun(foreign=True)
    call = {"call": "c0001", "worker": "n1-w1"}
    journal.note(0.0, "world", "called", intent={"kind": "ok", "prints": "4\n"}, allowed=60, **call)
    journal.note(0.0, "server", "arrived", call="c0001", attempt=1, path="/run_code", in_flight=1)
    for event in ("started", "finished"):
        journal.note(1.0, "server", event, call="c0001", attempt=1)
    journal.note(left, "server", "unanswered", call="c0001", attempt=1, status=0, client_gone=False)
    journal.note(left, "world", "returned", outcome=outcome, text=text, chars=len(text), **call)
    told = judged(journal, "text_is_truthful")
    assert told.startswith(state), told


@pytest.mark.parametrize(
    ("events", "state"),
    [(("answered", "unanswered"), "held"), (("unanswered", "answered"), "broken")],
)
def test_an_answer_may_be_sent_in_the_moment_of_a_crash_after_one_that_was_spoilt(
    events: tuple[str, str], state: str
) -> None:
    journal = begun(foreign=True)
    call = {"call": "c0001", "worker": "n1-w1"}
    journal.note(0.0, "world", "called", intent={"kind": "ok", "prints": "4\n"}, allowed=60, **call)
    for attempt, event in enumerate(events, 1):
        request = {"call": "c0001", "attempt": attempt}
        journal.note(attempt, "server", "arrived", path="/run_code", in_flight=1, **request)
        journal.note(attempt, "server", "finished", **request)
        if event == "answered":
            journal.note(
                attempt,
                "server",
                "strike",
                rule="spoilt",
                phase="body",
                kind="malformed",
                **request,
            )
        journal.note(attempt, "server", event, status=200, client_gone=False, **request)
    journal.note(2.0, "world", "returned", outcome="ok", text="4\n", chars=2, **call)
    told = judged(journal, "text_is_truthful")
    assert told.startswith(state), told


@pytest.mark.parametrize(("timed_out", "state"), [(True, "unknown"), (False, "broken")])
def test_a_result_that_was_lost_in_a_crash_is_not_what_a_later_answer_shows(
    timed_out: bool, state: str
) -> None:
    journal = begun(foreign=True)
    call = {"call": "c0001", "worker": "n1-w1"}
    journal.note(0.0, "world", "called", intent={"kind": "ok", "prints": "4\n"}, allowed=60, **call)
    for attempt, event in ((1, "unanswered"), (2, "answered")):
        request = {"call": "c0001", "attempt": attempt}
        journal.note(attempt, "server", "arrived", path="/run_code", in_flight=1, **request)
        journal.note(attempt, "server", "finished", **request)
        if attempt == 2 and timed_out:
            journal.note(
                2.0, "server", "strike", rule="slow", phase="during", kind="timeout", **request
            )
        journal.note(attempt, "server", event, status=200, client_gone=False, **request)
    journal.note(
        2.0, "world", "returned", outcome="program_timeout", text="It timed out.", chars=13, **call
    )
    told = judged(journal, "text_is_truthful")
    assert told.startswith(state), told


@pytest.mark.parametrize(("outcome", "state"), [("ok", "held"), ("program_timeout", "broken")])
def test_what_counts_is_the_execution_whose_answer_was_read(outcome: str, state: str) -> None:
    journal = begun(foreign=True)
    call = {"call": "c0001", "worker": "n1-w1"}
    journal.note(0.0, "world", "called", intent={"kind": "ok", "prints": "4\n"}, allowed=60, **call)
    for number, sandbox in enumerate("ba"):
        request = {"call": "c0001", "attempt": 1, "sandbox": sandbox}
        journal.note(number, "server", "arrived", path="/run_code", in_flight=1, **request)
        late = number == 1
        journal.note(number, "server", "finished", stopped=late, **request)
        journal.note(number, "server", "answered", status=200, client_gone=late, **request)
    text = (
        "4\n" if outcome == "ok" else "[The program timed out after 8 s; it had printed nothing.]"
    )
    journal.note(2.0, "world", "returned", outcome=outcome, text=text, chars=len(text), **call)
    told = judged(journal, "text_is_truthful")
    assert told.startswith(state), told


@pytest.mark.parametrize(("retry_after", "state"), [("0.5", "held"), (None, "broken")])
def test_an_order_to_wait_may_have_been_read_although_its_body_broke_off(
    retry_after: str | None, state: str
) -> None:
    journal = begun()
    call = {"call": "c0001", "worker": "n1-w1"}
    journal.note(0.0, "world", "called", intent={"kind": "ok", "prints": "4\n"}, allowed=60, **call)
    for attempt in (1, 2):
        request = {"call": "c0001", "attempt": attempt}
        journal.note(
            attempt, "client", "attempt_started", endpoint="sandbox-1", worker="n1-w1", **request
        )
        journal.note(attempt, "server", "arrived", path="/run_code", in_flight=1, **request)
        asked = retry_after if attempt == 1 else None
        journal.note(
            attempt,
            "server",
            "unanswered",
            status=0,
            client_gone=True,
            retry_after=asked,
            **request,
        )
    journal.note(
        3.0, "world", "returned", outcome="unreachable", text="It failed.", chars=10, **call
    )
    told = judged(journal, {"attempts_per_call": 1})
    assert told.startswith(state), told


@pytest.mark.parametrize(
    ("stopped_at", "state"), [(8.0, "held"), (4.0, "broken"), (None, "broken")]
)
def test_time_for_which_the_machine_stood_still_does_not_count_for_a_deadline(
    stopped_at: float | None, state: str
) -> None:
    """Five seconds of the call's seven if the stop ends at 8 s, two of them if it ends at 4 s."""
    journal = begun()
    about = {"worker": "n1-w1", "call": "c0001"}
    journal.note(2.0, "world", "called", **about, intent={"kind": "ok"}, allowed=4.0)
    sent = {"call": "c0001", "attempt": 1, "path": "/run_code"}
    journal.note(2.5, "server", "arrived", **sent, in_flight=1)
    if stopped_at is not None:
        journal.note(stopped_at, "world", "lagged", seconds=5.0)
    journal.note(9.0, "world", "returned", **about, outcome="ok", text="")
    assert judged(journal, "deadline_honoured").partition(":")[0] == state
